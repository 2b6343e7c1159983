from tests.portal.rescue.conftest import world

__all__ = ["world"]
