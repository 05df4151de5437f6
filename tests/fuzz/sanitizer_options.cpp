// How the sanitizers of these programs behave unless the environment says otherwise. What LibTorch keeps to the end is
// no leak of ours; an input of some kilobytes has no business asking for gigabytes; reports end in abort(), which keeps
// the input.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "max_allocation_size_mb=2000:detect_leaks=0:detect_stack_use_after_return=1:handle_abort=0:abort_on_error=1";
}
extern "C" __attribute__((visibility("default"))) const char* __ubsan_default_options() {
  return "print_stacktrace=1:halt_on_error=1:abort_on_error=1:handle_abort=0";
}
