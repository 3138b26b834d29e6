package page_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
)

// item is a member of a header that the page uses: a String and its Integer parameters.
type item struct {
	Name   string           `json:"name"`
	Params map[string]int64 `json:"params"`
}

func (i item) String() string { return fmt.Sprintf("%q %v", i.Name, i.Params) }

// read parses a header with the package httpsfv.
func read(header string) []item {
	list, err := httpsfv.UnmarshalList([]string{header})
	if err != nil {
		return nil
	}
	var items []item
	for _, member := range list {
		read, ok := member.(httpsfv.Item)
		if !ok {
			continue
		}
		name, ok := read.Value.(string)
		if !ok {
			continue
		}
		params := map[string]int64{}
		for _, key := range read.Params.Names() {
			value, _ := read.Params.Get(key)
			if n, ok := value.(int64); ok {
				params[key] = n
			}
		}
		items = append(items, item{name, params})
	}
	return items
}

// readByPage parses headers in the page.
func readByPage(b *tab, headers []string) [][]item {
	b.t.Helper()
	text, err := json.Marshal(headers)
	if err != nil {
		b.t.Fatal(err)
	}
	return eval[[][]item](b, string(text)+".map(readList)")
}

func same(a, b []item) bool {
	return slices.EqualFunc(a, b, func(a, b item) bool { return a.String() == b.String() })
}

func TestThePageParsesHeadersByTheStandard(t *testing.T) {
	t.Parallel()
	none := []item(nil)
	cases := []struct {
		header string
		want   []item
	}{
		{`"search";r=7;t=1`, []item{{"search", map[string]int64{"r": 7, "t": 1}}}},
		{`"a\"b\\c";r=1;t=2, "b";r=0`, []item{{`a"b\c`, map[string]int64{"r": 1, "t": 2}}, {"b", map[string]int64{"r": 0}}}},
		{` "a" ;r=1`, none}, // no blank before a semicolon
		{"  \"a\";  r=1 \t,\t\"b\"  ", []item{{"a", map[string]int64{"r": 1}}, {"b", nil}}},
		{`"a";pk=:YWJj:;r=1`, []item{{"a", map[string]int64{"r": 1}}}},
		{`"a";r=1.0;t=2`, []item{{"a", map[string]int64{"t": 2}}}},
		{`"a";r;t=?1;q=-3`, []item{{"a", map[string]int64{"q": -3}}}},
		{`"a";r=1;r=2`, []item{{"a", map[string]int64{"r": 2}}}},
		{`"a";r=1;r`, []item{{"a", nil}}},
		{`"a";qu="requests";w=@1;x=tok/en:1;*y.z-_=(1)`, none}, // a parameter is no list
		{`"a";qu="requests";w=@1;x=tok/en:1;*y.z-_=1`, []item{{"a", map[string]int64{"*y.z-_": 1}}}},
		{`"a";r=999999999999999`, []item{{"a", map[string]int64{"r": 999999999999999}}}},
		{`"a";r=1000000000000000`, none},
		{`token, 5, ?0, :YQ==:, ("in" "side";r=1);r=2, @5, "a";r=1`, []item{{"a", map[string]int64{"r": 1}}}},
		{`%"f%c3%bc%c3%9fe", "a"`, []item{{"a", nil}}},
		{`( ), (  "a"  ), ()`, none},
		{`"", ""`, []item{{"", nil}, {"", nil}}},
		{``, none},
		{`   `, none},
		{`"a",`, none},
		{`"a", `, none},
		{`,"a"`, none},
		{`"a",,"b"`, none},
		{`"a" "b"`, none},
		{`"a`, none},
		{`"a\n"`, none},
		{`"ä"`, none},
		{"\"a\tb\"", none},
		{`"a";R=1`, none},
		{`"a";=1`, none},
		{`"a";r=`, none},
		{`"a";r= 1`, none},
		{`"a";r=-`, none},
		{`"a";r=1.`, none},
		{`"a";r=1.2345`, none},
		{`"a";r=1.2.3`, none},
		{`"a";r=?2`, none},
		{`"a";r=@1.5`, none},
		{`"a";r=:a b:`, none},
		{`%"%C3", "a"`, none},
		{`%"%c3", "a"`, none}, // half of a character
		{`("a"`, none},
		{`("a""b")`, none},
		{`("a",)`, none},
		{`limit=10, remaining=7, reset=1`, none}, // an older draft
	}
	b := open(t, serve(t).URL)
	headers := make([]string, len(cases))
	for i, c := range cases {
		headers[i] = c.header
	}
	for i, got := range readByPage(b, headers) {
		if !same(got, cases[i].want) {
			t.Errorf("%s: the page reads %v, want %v", headers[i], got, cases[i].want)
		}
		if reference := read(headers[i]); !same(reference, cases[i].want) {
			t.Errorf("%s: httpsfv reads %v, want %v", headers[i], reference, cases[i].want)
		}
	}
}

func TestThePageParsesAnyHeaderLikeAnotherParser(t *testing.T) {
	t.Parallel()
	// These are the parts of a header, and some that are invalid.
	parts := strings.Split(`"a"§"b\"c"§"\\"§"§\§;§;r=1§;t=0§;q=10§;w=-5§;pk=:YWJj:§;x=1.5§;y§;z=?1§; r=2§, §,§ ,§`+
		" \t§ §(§)§tok§*t:/§12§-1§1.25§-§?0§?§@17§@§:YQ==:§:§%\"%c3%a4\"§%\"§%§=§.§é", "§")
	random := rand.New(rand.NewPCG(1, 2))
	headers := make([]string, 20_000)
	valid := 0
	for i := range headers {
		var header strings.Builder
		for range 1 + random.IntN(8) {
			// An even choice of parts makes few valid lists.
			if random.IntN(3) > 0 {
				header.WriteString(parts[random.IntN(2)])
				header.WriteString(parts[6+random.IntN(12)])
			} else {
				header.WriteString(parts[random.IntN(len(parts))])
			}
		}
		headers[i] = header.String()
		if len(read(headers[i])) > 0 {
			valid++
		}
	}
	if valid < len(headers)/20 || valid > len(headers)*19/20 {
		t.Fatalf("%d of %d headers are valid; the test needs more of the other kind", valid, len(headers))
	}
	b := open(t, serve(t).URL)
	for i, got := range readByPage(b, headers) {
		if want := read(headers[i]); !same(got, want) {
			t.Errorf("%q: the page reads %v, httpsfv %v", headers[i], got, want)
		}
	}
	t.Logf("%d of %d headers are valid", valid, len(headers))
}
