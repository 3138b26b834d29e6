// The clock of a server, for LD_PRELOAD: 3 s ahead of its host's. It opens, locks and allocates
// nothing, because PostgreSQL asks for the time in signal handlers.
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *t) {
	int failed = syscall(SYS_clock_gettime, id, t);
	if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += 3;
	return failed;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	(void)zone;
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
