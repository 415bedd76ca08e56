"""Problems and solutions in the forms of other projects, as operations and functions of gpubench.

A form is a module: it finds a problem's files, reads what they state, and runs its code. The code
runs in processes of its own: the process of `process.py`, and the measuring processes. All tensors
of a launch lie in one array of bytes, and all results in another one, so the rest of gpubench needs
no code for them.
"""
