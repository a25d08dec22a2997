"""Does a program speak the worker protocol as a host of kernels must? `python3 -m moetune.conformance -- COMMAND`."""
