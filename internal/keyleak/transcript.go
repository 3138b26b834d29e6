package keyleak

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Transcript is what programs say of a key, by its sources. Its zero value is empty. It is safe for concurrent use.
type Transcript struct {
	mu sync.Mutex
	by map[string][]byte
}

// Add adds a text of a source.
func (h *Transcript) Add(source string, text []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = map[string][]byte{}
	}
	h.by[source] = append(append(h.by[source], text...), '\n')
}

// Without returns what is wrong if a source has a trace of a text, or one of those that must be heard said next to
// nothing. What would show a text also shows one of plain, which the control has: just the holders do.
func (h *Transcript) Without(texts []string, control *Transcript, plain string, holders, heard []string) (wrong []string) {
	traces, shown := Of(texts...), Of(plain)
	for _, source := range slices.Sorted(maps.Keys(h.by)) {
		if found := traces.In(h.by[source]); len(found) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: a key that is digested, or the secret, as %q", source, found))
		}
		if found := shown.In(control.by[source]); slices.Contains(holders, source) != (len(found) > 0) {
			wrong = append(wrong, fmt.Sprintf("%s, %d bytes: a key that is not digested as %q", source, len(control.by[source]), found))
		}
	}
	for _, source := range heard {
		if len(h.by[source]) < 100 {
			wrong = append(wrong, "nothing was heard of "+source)
		}
	}
	return wrong
}
