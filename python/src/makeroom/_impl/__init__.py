"""The implementation of `makeroom`. Private: `makeroom` has the public names.

It is a package of its own so that `help(makeroom)` lists only public modules.
"""
