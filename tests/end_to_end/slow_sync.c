/* For LD_PRELOAD: each fsync and fdatasync takes as many milliseconds as the file $SLOW_SYNC_MS says; none where it is
 * not there. Looked at again and again, so that one which hangs can be let go.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long wanted_ms(void) {
    long milliseconds = 0;
    const char *path = getenv("SLOW_SYNC_MS");
    FILE *file = path == NULL ? NULL : fopen(path, "r");
    if (file == NULL) return 0;
    if (fscanf(file, "%ld", &milliseconds) != 1) milliseconds = 0;
    fclose(file);
    return milliseconds;
}

static void linger(void) {
    struct timespec pause = {0, 10 * 1000000L};
    for (long waited_ms = 0; waited_ms < wanted_ms(); waited_ms += 10) nanosleep(&pause, NULL);
}

int fsync(int handle) {
    linger();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(handle);
}

int fdatasync(int handle) {
    linger();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(handle);
}
