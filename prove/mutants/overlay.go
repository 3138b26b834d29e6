package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// plant writes the files that edits change, changed, into dir, and returns the file that
// tells go build to take them: the tree stays as it is.
func plant(root, dir string, edits []Edit) (overlay string, err error) {
	changed := map[string]string{}
	for _, e := range edits {
		text, found := changed[e.File]
		if !found {
			b, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return "", err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return "", fmt.Errorf("%s has this %d times, not once:\n%s", e.File, n, e.Old)
		}
		if e.New == e.Old {
			return "", fmt.Errorf("in %s nothing is changed by replacing:\n%s", e.File, e.Old)
		}
		changed[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	replace := map[string]string{}
	for file, text := range changed {
		// The compiler tells the name of the file that it was given.
		copied := filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(file)))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = copied
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, list, 0o600)
}
