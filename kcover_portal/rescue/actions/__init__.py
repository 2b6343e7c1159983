"""One module a step: ``run(context) -> Outcome``. To add one, write the module and name it in ``registry``.

A step may be run any number of times: it looks at the cluster first and only does what is still missing. Everything it
must remember between runs goes into its progress before the call it is about.
"""
