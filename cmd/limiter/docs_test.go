//go:build unix

package main_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/cli.md")
	must(t, err)
	page := string(text)
	_, list, _ := strings.Cut(succeeds(t, "", "help").stdout, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	commands := regexp.MustCompile(`(?m)^  (\w+)`).FindAllStringSubmatch(list, -1)
	if len(commands) < 10 {
		t.Fatalf("commands %q", commands)
	}
	for _, c := range commands {
		if !strings.Contains(page, "limiter "+c[1]) && !strings.Contains(page, "`"+c[1]) {
			t.Errorf("docs/cli.md does not show limiter %s", c[1])
		}
	}
	// Every flag that the page names exists.
	var help strings.Builder
	for _, c := range append(commands, []string{"", "override set"}, []string{"", "override list"}, []string{"", "migrate down"}) {
		help.WriteString(succeeds(t, "", append(strings.Fields(c[1]), "--help")...).stdout)
	}
	for _, flag := range regexp.MustCompile("--[a-z][a-z-]+").FindAllString(page, -1) {
		if !strings.Contains(help.String(), flag) {
			t.Errorf("docs/cli.md names the flag %s, which no command has", flag)
		}
	}
}
