/* Counts the system calls that change files under a folder, and lets one of them fail.
 *
 * Preloaded (LD_PRELOAD) into all processes of a command. They share the file FAILING_WRITES, which shim.py lays out in
 * the same way: what shall fail can be changed while they run. The folder is FAILING_WRITES_UNDER.
 *
 * It can also note the calls that were done in FAILING_WRITES.calls, and keep the files that were removed or replaced
 * under their numbers in FAILING_WRITES.kept, for what can be left of them after a loss of power.
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
    _Atomic int64_t on, failure, at, crash_after, calls, failed, crash_at, notes, moment, kinds[KINDS];
    char what[1024];
};

static const char *NAMES[] = {"open", "write", "rename", "link", "unlink", "sync", "truncate", "mkdir"};
static struct control *control;
static char under[PATH_MAX], notes[PATH_MAX + 8], kept[PATH_MAX + 8];
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
    snprintf(notes, sizeof notes, "%s.calls", file);
    snprintf(kept, sizeof kept, "%s.kept", file);
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

static int has_notes(void) { return is_on() && atomic_load(&control->notes); }
static int64_t now(void) { return has_notes() ? atomic_fetch_add(&control->moment, 1) + 1 : 0; }

/* Notes a call that was done: its moment, its name, the number and the size of the file, and its paths. */
static void note(int64_t moment, const char *name, const char *path, const char *old) {
    struct stat held = {0};
    char line[2 * PATH_MAX + 128];
    stat(path, &held);
    int size = snprintf(line, sizeof line, "%ld\t%s\t%lu\t%ld\t%s\t%s\n", (long)moment, name,
                        (unsigned long)held.st_ino, (long)held.st_size, path, old);
    int fd = REAL(open)(notes, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (REAL(write)(fd, line, size) != size)
        abort();
    close(fd);
}

static long noted_at(long done, const char *name, int fd, const char *path, int old_fd, const char *old) {
    int before = errno;
    char whole[PATH_MAX], old_whole[PATH_MAX] = "";
    if (done < 0 || !has_notes())
        return done;
    path_at(fd, path, whole);
    if (old)
        path_at(old_fd, old, old_whole);
    if (is_watched(whole))
        note(now(), name, whole, old_whole);
    errno = before;
    return done;
}

static long noted(long done, const char *name, int fd, int64_t moment) {
    int before = errno;
    char path[PATH_MAX];
    if (done < 0 || !has_notes())
        return done;
    path_of(fd, path);
    if (is_watched(path))
        note(moment ? moment : now(), name, path, "");
    errno = before;
    return done;
}

/* Keeps what is at a path, as it is about to be removed or replaced. */
static int keep(int fd, const char *name) {
    struct stat held;
    char path[PATH_MAX], other[PATH_MAX + 32];
    int before = errno;
    if (has_notes()) {
        path_at(fd, name, path);
        if (is_watched(path) && !lstat(path, &held) && S_ISREG(held.st_mode)) {
            snprintf(other, sizeof other, "%s/%lu", kept, (unsigned long)held.st_ino);
            REAL(link)(path, other);
        }
    }
    errno = before;
    return 0;
}

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
        int done = FAIL_OR(writes ? at_path(OPEN, fd, path) : GO_ON, REAL(name) before); \
        return flags & (O_CREAT | O_TRUNC) ? noted_at(done, "open", fd, path, 0, NULL) : done; \
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
    return noted(FAIL_OR(decided, REAL(write)(fd, from, half_of(decided, size))), "write", fd, 0);
}
ssize_t pwrite(int fd, const void *from, size_t size, off_t to) {
    int decided = at_fd(WRITE, fd);
    return noted(FAIL_OR(decided, REAL(pwrite)(fd, from, half_of(decided, size), to)), "write", fd, 0);
}
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t to) {
    int decided = at_fd(WRITE, fd);
    return noted(FAIL_OR(decided, REAL(pwrite64)(fd, from, half_of(decided, size), to)), "write", fd, 0);
}
/* Of several buffers, half is the first one. */
ssize_t writev(int fd, const struct iovec *from, int count) {
    int decided = at_fd(WRITE, fd);
    ssize_t done = FAIL_OR(decided, decided == HALF ? REAL(write)(fd, from->iov_base, half_of(HALF, from->iov_len))
                                                    : REAL(writev)(fd, from, count));
    return noted(done, "write", fd, 0);
}
ssize_t sendfile(int to, int from, off_t *offset, size_t size) {
    int decided = at_fd(WRITE, to);
    return noted(FAIL_OR(decided, REAL(sendfile)(to, from, offset, half_of(decided, size))), "write", to, 0);
}
ssize_t sendfile64(int to, int from, off64_t *offset, size_t size) {
    int decided = at_fd(WRITE, to);
    return noted(FAIL_OR(decided, REAL(sendfile64)(to, from, offset, half_of(decided, size))), "write", to, 0);
}
ssize_t copy_file_range(int from, off64_t *start, int to, off64_t *end, size_t size, unsigned flags) {
    int decided = at_fd(WRITE, to);
    return noted(FAIL_OR(decided, REAL(copy_file_range)(from, start, to, end, half_of(decided, size), flags)), "write", to, 0);
}

int rename(const char *old, const char *new) { return renameat2(AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int from, const char *old, int to, const char *new) { return renameat2(from, old, to, new, 0); }
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    int decided = at_path(RENAME, to, new);
    int done = FAIL_OR(decided, keep(to, new) + REAL(renameat2)(from, old, to, new, flags));
    return noted_at(done, "rename", to, new, from, old);
}
int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }
int linkat(int from, const char *old, int to, const char *new, int flags) {
    int done = FAIL_OR(at_path(LINK, to, new), REAL(linkat)(from, old, to, new, flags));
    return noted_at(done, "link", to, new, from, old);
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int unlinkat(int fd, const char *path, int flags) {
    int decided = at_path(UNLINK, fd, path);
    int done = FAIL_OR(decided, keep(fd, path) + REAL(unlinkat)(fd, path, flags));
    return noted_at(done, "unlink", fd, path, 0, NULL);
}
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    struct stat held;
    return unlinkat(AT_FDCWD, path, !lstat(path, &held) && S_ISDIR(held.st_mode) ? AT_REMOVEDIR : 0);
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
int mkdirat(int fd, const char *path, mode_t mode) {
    int done = FAIL_OR(at_path(MKDIR, fd, path), REAL(mkdirat)(fd, path, mode));
    return noted_at(done, "mkdir", fd, path, 0, NULL);
}
/* What is written while it is synced may be left out, so its moment is the one before. */
int fsync(int fd) {
    int64_t moment = now();
    return noted(FAIL_OR(at_fd(SYNC, fd), REAL(fsync)(fd)), "sync", fd, moment);
}
int fdatasync(int fd) {
    int64_t moment = now();
    return noted(FAIL_OR(at_fd(SYNC, fd), REAL(fdatasync)(fd)), "sync", fd, moment);
}
int syncfs(int fd) {
    int64_t moment = now();
    return noted(FAIL_OR(at_fd(SYNC, fd), REAL(syncfs)(fd)), "sync all", fd, moment);
}
int ftruncate(int fd, off_t size) {
    return noted(FAIL_OR(at_fd(TRUNCATE, fd), REAL(ftruncate)(fd, size)), "write", fd, 0);
}
int ftruncate64(int fd, off64_t size) {
    return noted(FAIL_OR(at_fd(TRUNCATE, fd), REAL(ftruncate64)(fd, size)), "write", fd, 0);
}
