"""What people have set, as one file: to keep it in git, and to set up a new database from it.

Belongs here: the form of the file (``document``, ``sealed``), which fields of which models are in it (``inventory``),
and for each section how its objects are read and made (``people``, ``clusters``, ``rows``, ``rules``). Objects are
made by the services of their apps. Never here: what an object means, and records of what happened.
"""
