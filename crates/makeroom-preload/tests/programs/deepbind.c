// Loads a plugin that binds to itself first.
#define _GNU_SOURCE
#include "cuda.h"
#include <dlfcn.h>
int main(int count, char **words) {
    begin();
    round_trip(1 << 10);
    void *plugin = dlopen(words[1], RTLD_NOW | RTLD_DEEPBIND);
    if (!plugin) return printf("%s\n", dlerror()), 1;
    printf("%d\n", ((int (*)(void))dlsym(plugin, "plugin_allocates"))());
    return 0;
}
