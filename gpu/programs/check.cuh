// One macro for every call of these programs: say what failed, and end.
#pragma once
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                          \
  do {                                                                                       \
    auto status = (call);                                                                    \
    if (status != 0) {                                                                       \
      std::fprintf(stderr, "%s:%d: %s answered %d\n", __FILE__, __LINE__, #call, int(status)); \
      std::exit(3);                                                                          \
    }                                                                                        \
  } while (0)
