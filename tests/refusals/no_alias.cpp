// A shared library that exports nothing of ours.
int nothing_of_ours() { return 0; }
