// Package field checks the names of HTTP header fields. Package handler and handler/awslambda call
// it.
package field

import "strings"

// IsName reports whether s is a valid field name: a token of RFC 9110, section 5.6.2.
func IsName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}
