package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// commands returns the shell commands of README.md without comments, one per line.
func commands(t *testing.T) []string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	must(t, err)
	var list []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(readme), -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			if line = strings.Join(strings.Fields(line), " "); line != "" && line[0] != '#' {
				list = append(list, line)
			}
		}
	}
	return list
}

func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	parameters, f := template(t)
	list := commands(t)
	index := func(part string) int {
		i := slices.IndexFunc(list, func(c string) bool { return strings.Contains(c, part) })
		if i < 0 {
			t.Errorf("no command has %q", part)
		}
		return i
	}
	target := "-o examples/lambda/" + path.Join(f.Properties.CodeURI, f.Properties.Handler)
	goose := index("goose -dir migrations/postgres -table public.limiter_goose_version postgres \"$DIRECT_URL\" up")
	bootstrap := index("CGO_ENABLED=0 GOOS=linux GOARCH=" + f.Properties.Architectures[0] + " go build -tags lambda.norpc -trimpath -ldflags=\"-s -w\" " + target + " ./examples/lambda")
	deploy := index("sam deploy --template-file examples/lambda/template.yaml")
	replace := index("gcloud run services replace")
	if goose > bootstrap || bootstrap > deploy || goose > replace {
		t.Errorf("the tables come first (%d), then the build (%d), then the commands that need them (%d, %d)", goose, bootstrap, deploy, replace)
	}
	mod, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	must(t, err)
	install := list[max(0, index("github.com/pressly/goose/v3/cmd/goose@"))]
	if version := install[strings.LastIndex(install, "@")+1:]; !strings.Contains(string(mod), "github.com/pressly/goose/v3 "+version+"\n") {
		t.Errorf("%s: go.mod has another version", install)
	}
	for _, p := range parameters {
		if !strings.Contains(list[max(0, deploy)], p+"=") {
			t.Errorf("sam deploy does not set the parameter %s", p)
		}
	}
}
