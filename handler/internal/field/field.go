// Package field knows what the fields of an HTTP header may look like.
package field

import "strings"

// IsName reports whether s can be the name of a field: a token of RFC 9110, section
// 5.6.2.
func IsName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}
