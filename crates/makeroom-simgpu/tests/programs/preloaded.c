/* A library that defines one of the driver's functions, as an injected one does. */
int cuMemAlloc_v2(unsigned long *address, unsigned long bytes) { return 4242; }
