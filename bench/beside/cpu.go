package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ticks is how many of its units of time Linux has in a second, on every architecture of Go's.
const ticks = 100

// busy returns how many seconds of CPU the workers and the server's processes have used; NaN if this
// machine cannot tell, because it runs another system or the server is elsewhere.
func (m *meter) busy(ctx context.Context) float64 {
	rows, err := m.database.Pool.Query(ctx, "SELECT pid FROM pg_stat_activity")
	if err != nil {
		return math.NaN()
	}
	servers, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return math.NaN()
	}
	var sum float64
	for _, pid := range servers {
		sum += used(pid, "postgres")
	}
	for _, w := range m.workers {
		sum += used(w.Process.Pid, "")
	}
	return sum
}

// used returns the seconds of CPU of a process, if it runs the program.
func used(pid int, program string) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return math.NaN()
	}
	before, after, _ := strings.Cut(string(stat), ") ") // pid (program) state ...
	fields := strings.Fields(after)
	if len(fields) < 13 || program != "" && !strings.HasSuffix(before, "("+program) {
		return math.NaN()
	}
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	if err1 != nil || err2 != nil {
		return math.NaN()
	}
	return (user + system) / ticks
}
