/* The same in a program that loads the library after it has registered its fork handlers. */
#define LATE
#include "fork_handlers.c"
