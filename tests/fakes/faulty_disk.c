/* A disk that fails as it is told to, for LD_PRELOAD: calls on files below $FAULTY_DISK_FOLDER.
 *
 * $FAULTY_DISK_PLAN is a file of PLANS plans, shared with the test (faulty_disk.py), one for each kind of call:
 *     seen      how many calls of the kind there were
 *     error     errno to fail with; 0: none
 *     first     the first call, counted by `seen`, that fails
 *     count     how many fail from there on
 *     delay_ms  how long each call of the kind takes
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { OPEN, READ, WRITE, SYNC, TRUNCATE, UNLINK, RENAME, MMAP, LOCK, PLANS };

struct plan {
    volatile int32_t seen, error, first, count, delay_ms;
};

static struct plan *plans;
static const char *folder;
static size_t folder_length;
static unsigned char is_ours[65536];

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTY_DISK_PLAN");
    folder = getenv("FAULTY_DISK_FOLDER");
    if (path == NULL || folder == NULL) return;
    folder_length = strlen(folder);
    int handle = REAL(open64)(path, O_RDWR | O_CLOEXEC);
    if (handle < 0) abort();
    void *shared = REAL(mmap64)(NULL, PLANS * sizeof(struct plan), PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    if (shared == MAP_FAILED) abort();
    REAL(close)(handle);
    plans = shared;
}

static int below(const char *path) {
    return plans != NULL && strncmp(path, folder, folder_length) == 0;
}

static int ours(int handle) {
    return plans != NULL && handle >= 0 && handle < (int)sizeof is_ours && is_ours[handle];
}

static int fails(int kind) {
    struct plan *plan = &plans[kind];
    int number = __sync_fetch_and_add(&plan->seen, 1);
    if (plan->delay_ms) {
        struct timespec pause = {plan->delay_ms / 1000, (plan->delay_ms % 1000) * 1000000L};
        nanosleep(&pause, NULL);
    }
    if (plan->error == 0 || number < plan->first || number - plan->first >= plan->count) return 0;
    errno = plan->error;
    return 1;
}

static int opened(int handle, const char *path) {
    if (handle >= 0 && handle < (int)sizeof is_ours) is_ours[handle] = below(path);
    return handle;
}

/* A file that is read-only can still be opened for reading. */
static int open_fails(const char *path, int flags) {
    if (!below(path)) return 0;
    /* A file that is there already is found before anything else is looked at. */
    if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL) && access(path, F_OK) == 0) return 0;
    int error = plans[OPEN].error;
    if ((error == EROFS || error == EACCES || error == EPERM) && (flags & O_ACCMODE) == O_RDONLY) return 0;
    return fails(OPEN);
}

#define OPEN_WITH(name)                                                  \
    int name(const char *path, int flags, ...) {                         \
        va_list rest;                                                    \
        va_start(rest, flags);                                           \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                    \
        if (open_fails(path, flags)) return -1;                          \
        return opened(REAL(name)(path, flags, mode), path);              \
    }
OPEN_WITH(open)
OPEN_WITH(open64)

int close(int handle) {
    if (handle >= 0 && handle < (int)sizeof is_ours) is_ours[handle] = 0;
    return REAL(close)(handle);
}

ssize_t pread64(int handle, void *buffer, size_t size, off64_t offset) {
    return ours(handle) && fails(READ) ? -1 : REAL(pread64)(handle, buffer, size, offset);
}

ssize_t pwrite64(int handle, const void *buffer, size_t size, off64_t offset) {
    return ours(handle) && fails(WRITE) ? -1 : REAL(pwrite64)(handle, buffer, size, offset);
}

ssize_t write(int handle, const void *buffer, size_t size) {
    return ours(handle) && fails(WRITE) ? -1 : REAL(write)(handle, buffer, size);
}

int fsync(int handle) { return ours(handle) && fails(SYNC) ? -1 : REAL(fsync)(handle); }

int fdatasync(int handle) { return ours(handle) && fails(SYNC) ? -1 : REAL(fdatasync)(handle); }

int ftruncate64(int handle, off64_t size) { return ours(handle) && fails(TRUNCATE) ? -1 : REAL(ftruncate64)(handle, size); }

int unlink(const char *path) { return below(path) && fails(UNLINK) ? -1 : REAL(unlink)(path); }

int rename(const char *from, const char *to) { return below(from) && fails(RENAME) ? -1 : REAL(rename)(from, to); }

/* A second name takes the same of the disk as another one does. */
int link(const char *from, const char *to) { return below(from) && fails(RENAME) ? -1 : REAL(link)(from, to); }

void *mmap64(void *address, size_t size, int protection, int flags, int handle, off64_t offset) {
    if (ours(handle) && fails(MMAP)) return MAP_FAILED;
    return REAL(mmap64)(address, size, protection, flags, handle, offset);
}

int fcntl64(int handle, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (ours(handle) && (command == F_SETLK || command == F_SETLKW) && ((struct flock64 *)argument)->l_type != F_UNLCK &&
        fails(LOCK))
        return -1;
    return REAL(fcntl64)(handle, command, argument);
}
