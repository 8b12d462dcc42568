"""Mutation testing: small wrong changes of privacy-critical code, each of which some test must catch.

A mutant changes one place of one function. The tests are collected once; for each mutant a child process is forked, the
code object of the live function is replaced, and the tests that run the changed line are run, fastest first, up to the
first failure. Nothing in the source tree is ever written.
"""
