package page

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/dunglas/httpsfv"
)

// item is a String of a header and its Integer parameters, which is what the page uses.
type item struct {
	Name   string           `json:"name"`
	Params map[string]int64 `json:"params"`
}

// read parses a header with the package httpsfv.
func read(header string) []item {
	list, err := httpsfv.UnmarshalList([]string{header})
	if err != nil {
		return nil
	}
	var items []item
	for _, member := range list {
		read, _ := member.(httpsfv.Item)
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

// headers are the cases that random parts do not make.
const headers = `"a\"b\\c";r=1;t=2, "b";r=0§"a";r=1;r=2§"a";r=1;r§"a";qu="requests";w=@1;x=tok/en:1;*y.z-_=(1)§"a";x=tok/en:1;*y.z-_=1§"a";r=999999999999999§` +
	`"a";r=1000000000000000§("in" "side";r=1);r=2, "a"§%"f%c3%bc%c3%9fe", "a"§( ), (  "a"  ), ()§"", ""§§   §"a" "b"§"a§"a\n"§"ä"§"a";R=1§"a";=1§"a";r= 1§"a";r=1.2345§` +
	`"a";r=1.2.3§"a";r=?2§"a";r=@1.5§"a";r=:a b:§%"%C3", "a"§%"%c3", "a"§("a""b")§("a",)§limit=10, remaining=7, reset=1`

func parses(b *tab) {
	// These are the parts of a header, and some that are invalid.
	parts := strings.Split(`"a"§"b\"c"§"\\"§"§\§;§;r=1§;t=0§;q=10§;w=-5§;pk=:YWJj:§;x=1.5§;y§;z=?1§; r=2§, §,§ ,§`+
		" \t§ §(§)§tok§*t:/§12§-1§1.25§-§?0§?§@17§@§:YQ==:§:§%\"%c3%a4\"§%\"§%§=§.§é", "§")
	random := rand.New(rand.NewPCG(1, 2))
	all := strings.Split(headers, "§")
	for range 20_000 {
		var header strings.Builder
		for range 1 + random.IntN(8) {
			// An even choice of parts makes few valid lists.
			if random.IntN(3) > 0 {
				header.WriteString(parts[random.IntN(2)] + parts[6+random.IntN(12)])
			} else {
				header.WriteString(parts[random.IntN(len(parts))])
			}
		}
		all = append(all, header.String())
	}
	text, err := json.Marshal(all)
	if err != nil {
		b.t.Fatal(err)
	}
	b.open(always(search("r=10")))
	valid := 0
	for i, got := range eval[[][]item](b, string(text)+".map(readList)") {
		want := read(all[i])
		if fmt.Sprint(got) != fmt.Sprint(want) {
			b.t.Errorf("%q: the page reads %v, httpsfv %v", all[i], got, want)
		}
		valid += min(len(want), 1)
	}
	if valid < len(all)/20 || valid > len(all)*19/20 {
		b.t.Errorf("%d of %d headers are valid; the test needs more of the other kind", valid, len(all))
	}
}
