/* Counts the system calls that change files under a folder, and lets one of them fail.
 *
 * Preloaded (LD_PRELOAD) into all processes of a command. They share the file FAILING_WRITES, which shim.py lays out in
 * the same way: what shall fail can be changed while they run. The folder is FAILING_WRITES_UNDER.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN, WRITE, RENAME, LINK, UNLINK, SYNC, TRUNCATE, MKDIR, KINDS };
enum failure { NONE, ERROR, FULL, INTERRUPTED, SHORT, CRASH, KILL };
enum { GO_ON = 0, HALF = -1 };

struct control {
    _Atomic int64_t on, failure, at, crash_after, calls, failed, crash_at, kinds[KINDS];
    char what[1024];
};

static const char *NAMES[] = {"open", "write", "rename", "link", "unlink", "sync", "truncate", "mkdir"};
static struct control *control;
static char under[PATH_MAX];
static size_t length;

__attribute__((constructor)) static void begin(void) {
    const char *file = getenv("FAILING_WRITES"), *folder = getenv("FAILING_WRITES_UNDER");
    if (!file || !folder)
        return;
    int fd = open(file, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    length = strlen(folder);
    memcpy(under, folder, length + 1);
    if (mapped != MAP_FAILED)
        control = mapped;
}

#define REAL(name) ({ \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
    real; \
})

static int is_watched(const char *path) {
    return !strncmp(path, under, length) && (path[length] == '/' || !path[length]);
}

static void path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    path[size < 0 ? 0 : size] = 0;
}

static void path_at(int fd, const char *name, char *path) {
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
        return;
    }
    if (fd != AT_FDCWD)
        path_of(fd, path);
    else if (!getcwd(path, PATH_MAX))
        path[0] = 0;
    size_t size = strlen(path);
    snprintf(path + size, PATH_MAX - size, "/%s", name);
}

/* Whether the failure can happen to such a call. A read-only sync or a removal needs no space. */
static int applies(enum failure failure, enum kind kind) {
    switch (failure) {
    case FULL: return kind != UNLINK && kind != SYNC && kind != TRUNCATE;
    case INTERRUPTED: return kind == OPEN || kind == WRITE || kind == SYNC || kind == TRUNCATE;
    case SHORT: return kind == WRITE;
    default: return 1;
    }
}

/* Counts a call; returns the error that it shall fail with, GO_ON, or HALF for a write that shall write half. */
static int decide(enum kind kind, const char *path) {
    if (!is_watched(path))
        return GO_ON;
    int64_t call = atomic_fetch_add(&control->calls, 1) + 1, at = atomic_load(&control->at);
    atomic_fetch_add(&control->kinds[kind], 1);
    int64_t crash_at = atomic_load(&control->crash_at);
    if (crash_at && call >= crash_at)
        return EIO;
    enum failure failure = atomic_load(&control->failure);
    if (failure == NONE || call < at || !applies(failure, kind))
        return GO_ON;
    int is_first = atomic_fetch_add(&control->failed, 1) == 0;
    if (!is_first && failure != FULL)
        return GO_ON;
    if (is_first) {
        snprintf(control->what, sizeof control->what, "%s %s", NAMES[kind], path);
        if (atomic_load(&control->crash_after))
            atomic_store(&control->crash_at, call + control->crash_after);
        if (failure == CRASH)
            atomic_store(&control->crash_at, call);
    }
    switch (failure) {
    case KILL: kill(getpid(), SIGKILL); return EIO;
    case FULL: return ENOSPC;
    case INTERRUPTED: return EINTR;
    case SHORT: return HALF;
    default: return EIO;
    }
}

static int is_on(void) { return control && atomic_load(&control->on); }

static int at_path(enum kind kind, int fd, const char *name) {
    if (!is_on() || !name)
        return GO_ON;
    int before = errno, decided;
    char path[PATH_MAX];
    path_at(fd, name, path);
    decided = decide(kind, path);
    errno = before;
    return decided;
}

static int at_fd(enum kind kind, int fd) {
    if (!is_on())
        return GO_ON;
    int before = errno, decided;
    char path[PATH_MAX];
    path_of(fd, path);
    decided = decide(kind, path);
    errno = before;
    return decided;
}

#define FAIL_OR(decided, call) ({ \
    int error = decided; \
    if (error > 0) \
        errno = error; \
    error > 0 ? -1 : (call); \
})

#define OPENS(name, fd, before, ...) \
    int name(__VA_ARGS__) { \
        mode_t mode = 0; \
        if (flags & (O_CREAT | __O_TMPFILE)) { \
            va_list more; \
            va_start(more, flags); \
            mode = va_arg(more, mode_t); \
            va_end(more); \
        } \
        int writes = (flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT; \
        return FAIL_OR(writes ? at_path(OPEN, fd, path) : GO_ON, REAL(name) before); \
    }

OPENS(open, AT_FDCWD, (path, flags, mode), const char *path, int flags, ...)
OPENS(open64, AT_FDCWD, (path, flags, mode), const char *path, int flags, ...)
OPENS(openat, folder, (folder, path, flags, mode), int folder, const char *path, int flags, ...)
OPENS(openat64, folder, (folder, path, flags, mode), int folder, const char *path, int flags, ...)

int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open64(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static size_t half_of(int decided, size_t size) { return decided == HALF && size > 1 ? size / 2 : size; }

ssize_t write(int fd, const void *from, size_t size) {
    int decided = at_fd(WRITE, fd);
    return FAIL_OR(decided, REAL(write)(fd, from, half_of(decided, size)));
}
ssize_t pwrite(int fd, const void *from, size_t size, off_t to) {
    int decided = at_fd(WRITE, fd);
    return FAIL_OR(decided, REAL(pwrite)(fd, from, half_of(decided, size), to));
}
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t to) {
    int decided = at_fd(WRITE, fd);
    return FAIL_OR(decided, REAL(pwrite64)(fd, from, half_of(decided, size), to));
}
/* Of several buffers, half is the first one. */
ssize_t writev(int fd, const struct iovec *from, int count) {
    int decided = at_fd(WRITE, fd);
    return FAIL_OR(decided, decided == HALF ? REAL(write)(fd, from->iov_base, half_of(HALF, from->iov_len))
                                            : REAL(writev)(fd, from, count));
}
ssize_t sendfile(int to, int from, off_t *offset, size_t size) {
    int decided = at_fd(WRITE, to);
    return FAIL_OR(decided, REAL(sendfile)(to, from, offset, half_of(decided, size)));
}
ssize_t sendfile64(int to, int from, off64_t *offset, size_t size) {
    int decided = at_fd(WRITE, to);
    return FAIL_OR(decided, REAL(sendfile64)(to, from, offset, half_of(decided, size)));
}
ssize_t copy_file_range(int from, off64_t *start, int to, off64_t *end, size_t size, unsigned flags) {
    int decided = at_fd(WRITE, to);
    return FAIL_OR(decided, REAL(copy_file_range)(from, start, to, end, half_of(decided, size), flags));
}

int rename(const char *old, const char *new) { return FAIL_OR(at_path(RENAME, AT_FDCWD, new), REAL(rename)(old, new)); }
int renameat(int from, const char *old, int to, const char *new) {
    return FAIL_OR(at_path(RENAME, to, new), REAL(renameat)(from, old, to, new));
}
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    return FAIL_OR(at_path(RENAME, to, new), REAL(renameat2)(from, old, to, new, flags));
}
int link(const char *old, const char *new) { return FAIL_OR(at_path(LINK, AT_FDCWD, new), REAL(link)(old, new)); }
int linkat(int from, const char *old, int to, const char *new, int flags) {
    return FAIL_OR(at_path(LINK, to, new), REAL(linkat)(from, old, to, new, flags));
}
int unlink(const char *path) { return FAIL_OR(at_path(UNLINK, AT_FDCWD, path), REAL(unlink)(path)); }
int unlinkat(int fd, const char *path, int flags) {
    return FAIL_OR(at_path(UNLINK, fd, path), REAL(unlinkat)(fd, path, flags));
}
int rmdir(const char *path) { return FAIL_OR(at_path(UNLINK, AT_FDCWD, path), REAL(rmdir)(path)); }
int remove(const char *path) { return FAIL_OR(at_path(UNLINK, AT_FDCWD, path), REAL(remove)(path)); }
int mkdir(const char *path, mode_t mode) { return FAIL_OR(at_path(MKDIR, AT_FDCWD, path), REAL(mkdir)(path, mode)); }
int mkdirat(int fd, const char *path, mode_t mode) {
    return FAIL_OR(at_path(MKDIR, fd, path), REAL(mkdirat)(fd, path, mode));
}
int fsync(int fd) { return FAIL_OR(at_fd(SYNC, fd), REAL(fsync)(fd)); }
int fdatasync(int fd) { return FAIL_OR(at_fd(SYNC, fd), REAL(fdatasync)(fd)); }
int ftruncate(int fd, off_t size) { return FAIL_OR(at_fd(TRUNCATE, fd), REAL(ftruncate)(fd, size)); }
int ftruncate64(int fd, off64_t size) { return FAIL_OR(at_fd(TRUNCATE, fd), REAL(ftruncate64)(fd, size)); }
