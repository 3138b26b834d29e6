// The clock of a server, for LD_PRELOAD: that of its host and so many nanoseconds as stand in the
// file that LIMITER_CLOCK names. The processes of the server map that file, so that one store sets the
// clock of all of them at once. PostgreSQL asks for the time in signal handlers as well: nothing here
// opens, locks or allocates anything after the start.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t second = 1000000000;
static _Atomic int64_t *ahead;

// map ends a program whose clock cannot be set, so that none runs by another one.
__attribute__((constructor)) static void map(void) {
	const char *name = getenv("LIMITER_CLOCK");
	int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	void *at = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
	if (at == MAP_FAILED) {
		static const char message[] = "LIMITER_CLOCK does not name a file that can be mapped\n";
		if (write(STDERR_FILENO, message, sizeof message - 1)) {}
		_exit(1);
	}
	close(file);
	ahead = at;
}

int clock_gettime(clockid_t id, struct timespec *t) {
	int failed = syscall(SYS_clock_gettime, id, t);
	if (failed || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return failed;
	int64_t now = t->tv_sec * second + t->tv_nsec + atomic_load(ahead);
	t->tv_sec = now / second - (now % second < 0);
	t->tv_nsec = now - t->tv_sec * second;
	return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	(void)zone; // nobody uses it
	struct timespec now;
	int failed = clock_gettime(CLOCK_REALTIME, &now);
	if (!failed) *t = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
	return failed;
}

time_t time(time_t *t) {
	struct timespec now;
	if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
	if (t) *t = now.tv_sec;
	return now.tv_sec;
}
