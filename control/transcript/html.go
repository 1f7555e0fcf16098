package transcript

import (
	"bufio"
	_ "embed"
	"fmt"
	"html"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

//go:embed page.css
var style string

// htmlPage writes a page that needs nothing but itself: no script, nothing from
// elsewhere. The policy in its head makes browsers keep to that.
type htmlPage struct {
	w    *bufio.Writer
	last Kind // who spoke last; a section is open unless it is ""
}

// markdown shows HTML of agents as it is written, and makes links of images: to show
// them, a reader's browser would ask somebody else for them.
// It is made when it is first used.
var markdown = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithExtensions(extension.GFM),
		goldmark.WithParserOptions(parser.WithASTTransformers(util.Prioritized(imagesAsLinks{}, 1000))),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(asWritten{}, 100))),
	)
})

// asWritten shows HTML as text.
type asWritten struct{}

func (asWritten) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindRawHTML, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			_, _ = w.Write(util.EscapeHTML(n.(*ast.RawHTML).Segments.Value(source)))
		}
		return ast.WalkSkipChildren, nil
	})
	r.Register(ast.KindHTMLBlock, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		block := n.(*ast.HTMLBlock)
		if entering {
			_, _ = w.WriteString("<p class=\"words\">")
			_, _ = w.Write(util.EscapeHTML(block.Lines().Value(source)))
			return ast.WalkContinue, nil
		}
		if block.HasClosure() {
			_, _ = w.Write(util.EscapeHTML(block.ClosureLine.Value(source)))
		}
		_, _ = w.WriteString("</p>\n")
		return ast.WalkContinue, nil
	})
}

type imagesAsLinks struct{}

func (imagesAsLinks) Transform(doc *ast.Document, _ text.Reader, _ parser.Context) {
	var images []*ast.Image
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if i, ok := n.(*ast.Image); ok && entering {
			images = append(images, i)
		}
		return ast.WalkContinue, nil
	})
	for _, i := range images {
		link := ast.NewLink()
		link.Destination, link.Title = i.Destination, i.Title
		for c := i.FirstChild(); c != nil; c = i.FirstChild() {
			link.AppendChild(link, c)
		}
		i.Parent().ReplaceChild(i.Parent(), i, link)
	}
}

// put writes text as it is. What the writer says comes with Flush.
func (p *htmlPage) put(s string) { _, _ = p.w.WriteString(s) }

// printf writes with strings escaped.
func (p *htmlPage) printf(format string, a ...any) {
	for i, v := range a {
		if s, ok := v.(string); ok {
			a[i] = html.EscapeString(s)
		}
	}
	fmt.Fprintf(p.w, format, a...)
}

func (p *htmlPage) head(s *Session) {
	p.put("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n" +
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n" +
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n" +
		"<meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"generator\" content=\"Sandbox Agent\">\n")
	p.printf("<title>%s</title>\n<style>\n", s.title())
	p.put(style)
	p.printf("</style>\n</head>\n<body>\n<header>\n<h1>%s</h1>\n<dl>\n", s.title())
	for _, row := range s.about() {
		p.printf("<div><dt>%s</dt><dd>%s</dd></div>\n", row[0], row[1])
	}
	p.put("</dl>\n</header>\n<main>\n")
}

// section begins another speaker's part.
func (p *htmlPage) section(speaker Kind, at string) {
	if speaker == p.last && speaker != User {
		return
	}
	p.endSection()
	if speaker != "" {
		p.printf("<section class=\"%s\">\n<h2>%s <time>%s</time></h2>\n", string(speaker), heading(&Entry{Kind: speaker}), at)
	}
	p.last = speaker
}

func (p *htmlPage) endSection() {
	if p.last != "" {
		p.put("</section>\n")
	}
	p.last = ""
}

func (p *htmlPage) entry(e *Entry) {
	speaker := e.Kind
	switch e.Kind {
	case Call, Plan, Thought: // what the agent does
		speaker = Agent
	case Note, Lost, TurnEnd:
		if e.Kind == TurnEnd && e.Turn.ending() == "" {
			return
		}
		speaker = ""
	}
	p.section(speaker, when(e.Time))
	p.body(e)
}

func (p *htmlPage) body(e *Entry) {
	switch e.Kind {
	case Call:
		p.tool(e.Tool)
	case Plan:
		p.put("<ul class=\"plan\">\n")
		for _, s := range e.Plan {
			p.printf("<li>%s %s</li>\n", mark(s.Status), s.Content)
		}
		p.put("</ul>\n")
	case Note, Lost:
		p.printf("<p class=\"note\">%s</p>\n", e.Text)
	case TurnEnd:
		p.printf("<p class=\"note\">%s</p>\n", e.Turn.ending())
	case Agent:
		p.put("<div class=\"text\">\n")
		if err := markdown().Convert([]byte(e.Text), p.w); err != nil { // of the writer, which says it again
			return
		}
		p.put("</div>\n")
	case Thought:
		p.printf("<details class=\"thought\"><summary>Thought</summary><p>%s</p></details>\n", strings.TrimSpace(e.Text))
	default:
		p.printf("<p class=\"words\">%s</p>\n", strings.TrimSpace(e.Text))
	}
	for _, f := range e.Files {
		p.file(f)
	}
}

func (p *htmlPage) file(f File) {
	if f.Data == "" {
		p.printf("<p class=\"file\">%s</p>\n", f.Name)
		return
	}
	p.printf("<p><img alt=\"image\" src=\"data:%s;base64,%s\"></p>\n", f.MIMEType, f.Data)
}

func (p *htmlPage) tool(t *Tool) {
	if t.Command == "" && t.Output == "" && len(t.Diffs) == 0 && len(t.Images) == 0 && len(t.Parts) == 0 {
		p.printf("<p class=\"tool\">%s</p>\n", t.summary())
		return
	}
	open := ""
	if len(t.Diffs) > 0 { // what was changed is what readers look for
		open = " open"
	}
	p.printf("<details class=\"tool %s\"%s><summary>%s</summary>\n", t.Status, open, t.summary())
	if t.Command != "" {
		p.printf("<pre class=\"command\">%s</pre>\n", t.Command)
	}
	for _, d := range t.Diffs {
		p.diff(d)
	}
	if t.Output != "" {
		p.printf("<pre>%s</pre>\n", t.Output)
	}
	for _, i := range t.Images {
		p.file(i)
	}
	for _, part := range t.Parts {
		p.body(part)
	}
	p.put("</details>\n")
}

func (p *htmlPage) diff(d Diff) {
	p.printf("<p class=\"path\">%s</p>\n", d.Path)
	if d.Text == "" {
		return
	}
	p.put("<pre class=\"diff\">")
	for line := range strings.Lines(d.Text) {
		class := ""
		switch line[0] {
		case '+':
			class = "added"
		case '-':
			class = "removed"
		case '@':
			class = "place"
		}
		p.printf("<span class=\"%s\">%s</span>", class, line)
	}
	p.put("</pre>\n")
}

func (p *htmlPage) foot(cost string, l *LeftOut) {
	p.endSection()
	p.put("</main>\n<footer>\n")
	if cost != "" {
		p.printf("<p>Cost: %s</p>\n", cost)
	}
	if list := l.List(); len(list) > 0 {
		p.put("<p>Left out:</p>\n<ul>\n")
		for _, line := range list {
			p.printf("<li>%s</li>\n", line)
		}
		p.put("</ul>\n")
	}
	p.put("</footer>\n</body>\n</html>\n")
}
