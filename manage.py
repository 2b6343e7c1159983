#!/usr/bin/env python
"""Django's command line in a checkout. An installed portal has the command ``kcover-portal``."""

from kcover_portal.__main__ import main

if __name__ == "__main__":
    main()
