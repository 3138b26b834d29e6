package keyleak_test

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/sqlimit/limiter/internal/keyleak"
	"github.com/sqlimit/limiter/internal/testenv"
)

const key = "kzvq-7dXw&alice+ö@example.org/pq93Hmf"

func TestTracesInEveryForm(t *testing.T) {
	t.Parallel()
	traces := keyleak.Of(key)
	for before := range 4 {
		for after := range 4 {
			whole := strings.Repeat("<", before) + key + strings.Repeat(">", after)
			for name, text := range map[string]string{
				"raw": whole, "hex": hex.EncodeToString([]byte(whole)), "upper hex": fmt.Sprintf("%X", whole),
				"base64": base64.StdEncoding.EncodeToString([]byte(whole)), "base64url": base64.URLEncoding.EncodeToString([]byte(whole)),
				"query": url.QueryEscape(whole), "Go": fmt.Sprintf("%q", whole), "Go bytes": fmt.Sprint([]byte(whole)),
				"Go bytes in source": fmt.Sprintf("%#v", []byte(whole)), "percent": "%" + strings.ReplaceAll(fmt.Sprintf("% x", whole), " ", "%"),
				"first half": whole[:before+len(key)/2], "last half": whole[before+len(key)/2:],
				"lower": strings.ToLower(whole), "SQL": "'" + whole + "'",
			} {
				testenv.Equal(t, len(traces.In([]byte(text))) > 0, true, "finds", name, "with", before, "before and", after, "behind in", text)
			}
		}
	}
}

func TestNoTraces(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "alice", "example.org", strings.Repeat("kzvq", 9), key[:len(key)/2-1]} {
		testenv.Equal(t, keyleak.Of(key).In([]byte(text)), nil, text)
	}
}

type detailed struct{ Detail string }

func (*detailed) Error() string { return "something failed" }

func TestFields(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("outer: %w", errors.Join(errors.New("other"), fmt.Errorf("inner: %w", &detailed{Detail: key})))
	traces := keyleak.Of(key)
	testenv.Equal(t, traces.In([]byte(fmt.Sprint(err))), nil, "traces in the text")
	testenv.Equal(t, len(traces.In([]byte(keyleak.Fields(err)))) > 0, true, "finds traces in the fields", keyleak.Fields(err))
	testenv.Contains(t, keyleak.Text(err), "outer", "other", "inner", "something failed")
}
