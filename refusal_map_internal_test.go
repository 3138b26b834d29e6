package limiter

import "testing"

func TestTheOldestRefusalOfAFewIsForgotten(t *testing.T) {
	t.Parallel()
	for range 200 { // each iteration of a map begins anywhere
		sh := refusalShard{keys: map[string]*refusal{}}
		for i, key := range []string{"b", "a", "d", "c"} { // as many as are looked at
			sh.keys[key] = &refusal{key: key, sent: instant{mono: int64(i)}}
		}
		if sh.evict(); sh.keys["b"] != nil || len(sh.keys) != evictTries-1 {
			t.Fatalf("%v are left, want all but b, the oldest", sh.keys)
		}
	}
}

func TestARefusalCountsOnce(t *testing.T) {
	t.Parallel()
	var m refusalMap
	m.init(2)
	r := &refusal{key: "k"}
	for i, do := range []func(){func() { m.keep(r, 0) }, func() { m.drop(r) }} {
		for range 2 {
			if do(); m.held.Load() != int64(1-i) {
				t.Errorf("%d refusals count, want %d", m.held.Load(), 1-i)
			}
		}
	}
}
