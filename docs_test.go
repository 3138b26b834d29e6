package limiter_test

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	codeBlocks = regexp.MustCompile("(?s)```.*?```")
	codeSpans  = regexp.MustCompile("`[^`\n]*`")
	headings   = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
	links      = regexp.MustCompile(`\]\(<?([^)>\s]+)|(?m)^ *\[[^\]]+\]: +(\S+)`)
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
	noAnchor   = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// linksOf returns the targets of the links and images of a Markdown text.
func linksOf(text string) []string {
	text = codeSpans.ReplaceAllString(codeBlocks.ReplaceAllString(text, ""), "")
	var targets []string
	for _, m := range links.FindAllStringSubmatch(text, -1) {
		targets = append(targets, m[1]+m[2])
	}
	return targets
}

// anchorsOf returns the anchors that GitHub gives to the headings of a Markdown text.
func anchorsOf(text string) []string {
	var anchors []string
	seen := map[string]int{}
	for _, m := range headings.FindAllStringSubmatch(codeBlocks.ReplaceAllString(text, ""), -1) {
		anchor := strings.ToLower(linkTarget.ReplaceAllString(m[1], ""))
		anchor = strings.ReplaceAll(noAnchor.ReplaceAllString(anchor, ""), " ", "-")
		n := seen[anchor]
		seen[anchor]++
		if n > 0 {
			anchor = fmt.Sprintf("%s-%d", anchor, n)
		}
		anchors = append(anchors, anchor)
	}
	return anchors
}

func TestLinksOfMarkdownResolve(t *testing.T) {
	t.Parallel()
	texts := files(t, pages)
	targets, anchors := 0, 0
	for file, text := range texts {
		for _, link := range linksOf(text) {
			if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
				continue
			}
			name, anchor, hasAnchor := strings.Cut(link, "#")
			target := file
			if name != "" {
				target = path.Join(path.Dir(file), name)
				targets++
			}
			if _, err := os.Stat(target); err != nil || strings.HasPrefix(target, "../") {
				t.Errorf("%s links to %s, which is no file of this repository", file, link)
				continue
			}
			if hasAnchor {
				anchors++
				if !slices.Contains(anchorsOf(texts[target]), anchor) {
					t.Errorf("%s links to %s, but %s has no such heading", file, link, target)
				}
			}
		}
	}
	// If the patterns matched nothing, this test would always pass.
	if targets < 30 || anchors < 10 {
		t.Errorf("found %d links to files and %d to headings, want at least 30 and 10", targets, anchors)
	}
}

func TestCommentsNameHeadingsOfDesign(t *testing.T) {
	t.Parallel()
	var known []string
	for _, m := range headings.FindAllStringSubmatch(read(t, "DESIGN.md"), -1) {
		known = append(known, m[1])
	}
	lineBreak := regexp.MustCompile(`\n\s*(//|--)\s*`)
	reference := regexp.MustCompile(`DESIGN\.md, ("[^"]+"(?: and "[^"]+")*)`)
	found := 0
	for file, text := range files(t, `\.(go|sql)$`) {
		for _, m := range reference.FindAllStringSubmatch(lineBreak.ReplaceAllString(text, " "), -1) {
			for _, heading := range strings.Split(strings.Trim(m[1], `"`), `" and "`) {
				found++
				if !slices.Contains(known, heading) {
					t.Errorf("%s names the heading %q, which DESIGN.md does not have", file, heading)
				}
			}
		}
	}
	// If the pattern matched nothing, this test would always pass.
	if found < 5 {
		t.Errorf("found %d references to headings, want at least 5", found)
	}
}
