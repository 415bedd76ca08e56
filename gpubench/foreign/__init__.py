"""Turns problems and solutions of other projects into operations and functions of gpubench.

A form is the file format of another project. Each form has a module here, which finds a problem's
files, reads them, and runs the problem's code. The code runs in the process of `process.py` and in
the measuring processes. All inputs of a launch lie in one array of bytes, and all results in
another array of bytes, so the rest of gpubench needs no code for tensors.
"""
