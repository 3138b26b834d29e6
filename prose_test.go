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

// maxWords is the most words that a sentence may have. Aim at 25.
const maxWords = 35

// unwanted maps words that no page needs to what to write instead.
var unwanted = map[*regexp.Regexp]string{
	regexp.MustCompile(`(?i)\bmend(s|ed|ing)?\b`):    "fix",
	regexp.MustCompile(`(?i)\bin place of\b`):        "instead of",
	regexp.MustCompile(`(?i), too([.,;:)]|$)`):       "also",
	regexp.MustCompile(`(?i)(^|[.,;:(|] )else\b`):    "otherwise",
	regexp.MustCompile(`(?i)\bwho(so)?ever\b`):       "who that is: the caller, the client, the server",
	regexp.MustCompile(`(?i)\b(simply|obviously)\b`): "nothing in its place",
	regexp.MustCompile(`(?i)\b(lanes?|flights|boarding|patience|crowds?|gossip|prey|thaw(s|ed)?|spoil(s|ed|t)?|ails?)\b`): "what it is, not a metaphor",
	regexp.MustCompile(`(?i)\b(behaviou|colou|honou|favou)rs?\b|\b(cent|met)res?\b|\bcancell(ed|ing)\b`):                  "the American spelling",
}

var (
	notProse    = regexp.MustCompile("(?s)```.*?```|<!--.*?-->")
	ownLine     = regexp.MustCompile(`^\s*(\||#|<)`) // a row of a table, a heading, HTML
	listItem    = regexp.MustCompile(`^\s*([-*+]|\d+\.|>)\s+`)
	sentenceEnd = regexp.MustCompile("[.!?][\"')*_\\]]*$")
	wordOfText  = regexp.MustCompile(`\S*[\p{L}\p{N}]\S*`)
)

// proseErrors returns what to change in a Markdown text: the line, the first words, what to do. It
// ignores code and the targets of links. Headings and rows of tables may be long.
func proseErrors(text string) (errs []string) {
	text = notProse.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })
	text = linkTarget.ReplaceAllString(codeSpans.ReplaceAllString(text, "code"), "]")
	start, sentence := 0, ""
	end := func(mayBeLong bool) {
		words := wordOfText.FindAllString(sentence, -1)
		where := fmt.Sprintf("%d: %q: ", start, strings.Join(words[:min(6, len(words))], " "))
		for pattern, instead := range unwanted {
			if found := pattern.FindString(sentence); found != "" {
				errs = append(errs, where+fmt.Sprintf("instead of %q write %s", strings.Trim(found, ".,;:(| "), instead))
			}
		}
		if len(words) > maxWords && !mayBeLong {
			errs = append(errs, where+fmt.Sprintf("the sentence has %d words; split it, %d are the most", len(words), maxWords))
		}
		sentence = ""
	}
	code, empty := false, true
	for i, line := range strings.Split(text, "\n") {
		item, own := listItem.MatchString(line), ownLine.MatchString(line)
		code = strings.HasPrefix(line, "    ") && (code || empty) && !item
		if empty = strings.TrimSpace(line) == ""; empty || code || item || own {
			end(false)
		}
		if code {
			continue
		}
		for word := range strings.FieldsSeq(listItem.ReplaceAllString(line, "")) {
			if sentence == "" {
				start, sentence = i+1, word
			} else {
				sentence += " " + word
			}
			if !own && sentenceEnd.MatchString(word) {
				end(false)
			}
		}
		if own {
			end(true)
		}
	}
	end(false)
	return errs
}

func TestPlainSentences(t *testing.T) {
	t.Parallel()
	// If the patterns matched nothing, this test would always pass.
	wrong := "// One.\n//\n// Two comes in\n// place of one, too. " + strings.Repeat("word ", maxWords) + "end.\n"
	if errs := proseErrors(commentsOf(wrong)); len(errs) != 3 {
		t.Errorf("the errors of a text are %q, want 3", errs)
	}
	for file, text := range files(t, `\.(md|go|sql)$`) {
		if path.Ext(file) != ".md" {
			text = commentsOf(text)
		}
		for _, err := range proseErrors(text) {
			t.Errorf("%s:%s", file, err)
		}
	}
}

// commentsOf returns the comments that have lines of their own in a Go or SQL file, at the same lines.
func commentsOf(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line = strings.TrimSpace(line)
		comment, found := strings.CutPrefix(line, "// ")
		if !found {
			comment, found = strings.CutPrefix(line, "-- ")
		}
		if !found {
			comment = ""
		}
		lines[i] = comment
	}
	return strings.Join(lines, "\n")
}

func TestNamesOfTestsAreShort(t *testing.T) {
	t.Parallel()
	const most = 40
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w*)\(`)
	for file, text := range files(t, `_test\.go$`) {
		for _, m := range declared.FindAllStringSubmatch(text, -1) {
			if len(m[1]) > most {
				t.Errorf("%s: %s has %d letters, %d are the most; say the rest in the names of subtests", file, m[1], len(m[1]), most)
			}
		}
	}
}

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
