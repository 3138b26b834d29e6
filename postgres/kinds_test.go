package postgres_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/tables"
)

// ownCalls are the arguments of the statements of a kind's own files after the key: see calls. With the
// name all, they are those of a claim after limiter and key.
var ownCalls = map[limiter.PolicyKind]map[string]string{
	limiter.KindBucket: {
		"Take":   `1000, 1, 1000, NULL, 1000, '20'`,
		"Takes":  `'{1000}', '{1}', '{1000}', '{0}', '{1}', '{1000}', '1s'`,
		"Refund": `1, NULL, '20'`,
		"Cancel": `1, 1, 1000, 1, 1, NULL, '20'`,
		"all":    `1000, 1, 1000, 1000`,
	},
	limiter.KindWindow: {
		"Take":   `1000000, 1, 1, NULL, 2000000000, 0, '20'`,
		"Takes":  `'{1000000}', '{1}', '{1}', '{0}', '{1}', '{1}', '1s'`,
		"Count":  `1000000, 1, 1, NULL, 2000000000, 0, '20'`,
		"Refund": `1, NULL, 1000000, 1, '20'`,
		"Cancel": `1, 1, 1000000, 1, NULL, '20'`,
		"all":    `1000000, 1, 1, 2000000000`,
	},
	limiter.KindInFlight: {
		"Take":    `1, 1000000, 1, NULL, 86402000000000, '20'`,
		"Release": `1, '20'`,
	},
	limiter.KindSliding: {"Take": `1000000, 1, 1, NULL, 2000000000, 1, '20'`},
}

// calls is what each statement that finds its row by the key is called with; %[1]s stands for the key.
var calls = func() map[string]string {
	calls := map[string]string{}
	var both, most []string
	for _, t := range tables.All {
		for name, args := range ownCalls[t.Kind] {
			switch name {
			case "all":
				claim := func(name string) string { return fmt.Sprintf("'%s', %%[1]s, %s", name, args) }
				calls["all"+upper(t.Prefix)] = "NULL, " + claim("l") + ", '20'"
				both = append(both, claim("l"), claim("m"))
				most = append(most, claim("l"), claim("m"), claim("n"), claim("o"))
			case "Takes":
				calls[t.Prefix+name] = "'{l}', array[%[1]s]::bytea[], " + args
			default:
				calls[t.Prefix+name] = "'l', %[1]s, " + args
			}
		}
		calls[t.Prefix+"Read"] = "'l', %[1]s"
		for _, name := range []string{"Reset", "Lock"} {
			calls[t.Prefix+name] = "'l', %[1]s, '20'"
		}
		if ownCalls[t.Kind]["Release"] == "" { // leases are no claims of AllowAll
			calls[t.Prefix+"Skip"] = "'l', %[1]s, '20'"
		}
		row := ""
		for _, column := range t.Columns {
			row += map[bool]string{true: "'{}', ", false: "1, "}[slices.Contains(t.Lists, column)]
		}
		calls[t.Prefix+"Swap"] = "'l', %[1]s, " + row + row + "'20'"
	}
	const calendar = `1000000, 1, 1, 2000000000, 0`
	calls["calendarTake"] = `'l', %[1]s, 86400000000000, 1, 1, NULL, 2000000000, 0, 0, '20'`
	calls["calendarCount"] = `'l', %[1]s, 86400000000000, 1, 1, NULL, 2000000000, 1, 0, '20'`
	calls["calendarTakes"] = `'{l}', array[%[1]s]::bytea[], '{86400000000000}', '{1}', '{1}', '{0}', '{1}', '{1}', '{0}', '1s'`
	calls["allCalendar"] = "NULL, 'l', %[1]s, " + calendar + ", 'm', %[1]s, " + calendar + ", '20'"
	calls["allBoth"] = "NULL, " + strings.Join(both, ", ") + ", '20'"
	calls["allMost"] = "NULL, " + strings.Join(most, ", ") + ", '20'"
	return calls
}()

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// allTables returns the names of all tables of a schema, separated by commas.
func allTables(schema string) string { return rowtest.SQL{Schema: schema}.Names() }
