package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// coldStart is one start of a function. init is the time from exec to the first poll for an
// event, and event the time from that event to the response.
type coldStart struct{ init, event time.Duration }

func startCold(b *testing.B, binary string, env map[string]string, event []byte) coldStart {
	b.Helper()
	api := newRuntimeAPI(b)
	env["AWS_LAMBDA_RUNTIME_API"] = api.address
	p := launch(b, binary, env)
	asked := <-api.asked
	given := time.Now()
	o := api.invoke(b, p, event, testTimeout)
	if o.error || !strings.Contains(string(o.body), `"statusCode":200`) {
		b.Fatalf("%s\n%s", o.body, &p.output)
	}
	p.kill()
	return coldStart{asked.Sub(p.started), o.at.Sub(given)}
}

// BenchmarkColdStart starts the function up to its first decision, in turn with a function
// that does nothing. The difference is the program's own share.
func BenchmarkColdStart(b *testing.B) {
	hello, program := build(b, "./testdata/hello"), build(b, ".")
	for _, migrated := range []bool{true, false} {
		name := "new file"
		if migrated {
			name = "migrated file"
		}
		b.Run(name, func(b *testing.B) {
			files, n := b.TempDir(), 0
			env := func() map[string]string {
				if migrated {
					return map[string]string{"LIMITER_SQLITE": filepath.Join(files, "one.db")}
				}
				return map[string]string{"LIMITER_SQLITE": filepath.Join(files, fmt.Sprintf("%d.db", n))}
			}
			recorded := string(request(b, "httpapi.json", http.MethodGet, "/search", ""))
			// The limit would soon refuse a single client.
			event := func() []byte {
				n++
				return []byte(strings.ReplaceAll(recorded, `"192.0.2.1"`, fmt.Sprintf(`"10.0.%d.%d"`, n/256, n%256)))
			}
			startCold(b, program, env(), event()) // reads the binary into memory, and migrates
			var ours, floor coldStart
			for b.Loop() {
				o := startCold(b, program, env(), event())
				f := startCold(b, hello, env(), event())
				ours.init, ours.event = ours.init+o.init, ours.event+o.event
				floor.init, floor.event = floor.init+f.init, floor.event+f.event
			}
			report := func(d time.Duration, unit string) {
				b.ReportMetric(float64(d.Microseconds())/1000/float64(b.N), unit)
			}
			report(ours.init, "ms-init")
			report(ours.event, "ms-first-event")
			report(floor.init+floor.event, "ms-hello")
			report(ours.init+ours.event-floor.init-floor.event, "ms-own")
			report(0, "ns/op") // it would be that of two processes
		})
	}
}
