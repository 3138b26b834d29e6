package keyleak

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Transcript is what programs say of a key, by its sources. Its zero value is empty.
type Transcript struct {
	mu sync.Mutex
	by map[string][]byte
}

// Add adds a text of a source. It is safe for concurrent use.
func (h *Transcript) Add(source string, text []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = map[string][]byte{}
	}
	h.by[source] = append(append(h.by[source], text...), '\n')
}

// Without returns what is wrong: a source has one of texts, or one of required has fewer than 100 bytes. It also
// returns where the search would find nothing: the control has a key, plain, in all of exposed and nowhere else.
// Call it after all calls of Add.
func (h *Transcript) Without(texts []string, control *Transcript, plain string, exposed, required []string) (wrong []string) {
	traces, shown := Of(texts...), Of(plain)
	for _, source := range slices.Sorted(maps.Keys(h.by)) {
		if found := traces.In(h.by[source]); len(found) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: a key that is digested, or the secret, as %q", source, found))
		}
		if found := shown.In(control.by[source]); slices.Contains(exposed, source) != (len(found) > 0) {
			wrong = append(wrong, fmt.Sprintf("%s, %d bytes: a key that is not digested as %q", source, len(control.by[source]), found))
		}
	}
	for _, source := range required {
		if len(h.by[source]) < 100 {
			wrong = append(wrong, "nothing was heard of "+source)
		}
	}
	return wrong
}
