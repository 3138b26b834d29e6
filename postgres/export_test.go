package postgres

import "reflect"

// Statements returns the rendered statements of a store by their names, so that
// tests can prepare and explain them.
func Statements(schema string, asyncCommit bool) map[string]string {
	v := reflect.ValueOf(render(schema, asyncCommit))
	texts := map[string]string{}
	for i := range v.NumField() {
		texts[v.Type().Field(i).Name] = v.Field(i).String()
	}
	return texts
}

// Files returns the names of the embedded files.
func Files() []string {
	entries, err := files.ReadDir("sql")
	if err != nil {
		panic(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
