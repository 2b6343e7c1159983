"""The names of actors are made and read in one place."""

from kcover import actors


def test_a_name_is_read_as_it_was_made() -> None:
    ann, program = actors.user("ann"), actors.token("viewer kcv_Ab12")
    assert (actors.is_user(ann), actors.is_token(ann), actors.username(ann)) == (True, False, "ann")
    assert (actors.is_user(program), actors.is_token(program), actors.username(program)) == (False, True, program)
    assert not actors.is_user(actors.SYSTEM)
    assert not actors.is_token(actors.SYSTEM)


def test_a_user_may_be_called_like_a_program() -> None:
    name = actors.user(actors.token("x"))
    assert (actors.is_user(name), actors.is_token(name)) == (True, False)
