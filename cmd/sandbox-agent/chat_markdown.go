package main

import (
	"fmt"
	"strings"
	"sync"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// markdown renders Markdown for a terminal: for text of agents, so without HTML.
type markdown struct {
	s      *chatStyles
	source []byte
}

// markdownParser is made when it is first used: no other command needs it.
var markdownParser = sync.OnceValue(func() parser.Parser {
	return parser.NewParser(
		parser.WithBlockParsers(parser.DefaultBlockParsers()...),
		parser.WithInlineParsers(append(parser.DefaultInlineParsers(),
			util.Prioritized(extension.NewTaskCheckBoxParser(), 0),
			util.Prioritized(extension.NewStrikethroughParser(), 500))...),
		// Without links by reference, which are defined elsewhere in a text.
		parser.WithParagraphTransformers(util.Prioritized(extension.NewTableParagraphTransformer(), 200)),
	)
})

// render is Markdown for a terminal of this width.
func (s *chatStyles) render(source string, width int) string {
	m := &markdown{s, []byte(source)}
	return m.blocks(markdownParser().Parse(text.NewReader(m.source)), max(width, 20), "\n\n")
}

// blocks renders what is in a block, one below the other.
func (m *markdown) blocks(parent ast.Node, width int, between string) string {
	var out []string
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		if block := m.block(n, width); block != "" {
			out = append(out, block)
		}
	}
	return strings.Join(out, between)
}

func (m *markdown) block(n ast.Node, width int) string {
	wrap := lipgloss.NewStyle().Width(width)
	switch n := n.(type) {
	case *ast.Heading:
		return wrap.Render(m.s.user.Render(strings.Repeat("#", n.Level) + " " + m.inline(n)))
	case *ast.FencedCodeBlock, *ast.CodeBlock, *ast.HTMLBlock:
		return m.code(n.Lines(), width)
	case *ast.Blockquote:
		return indent(m.blocks(n, width-2, "\n\n"), m.s.dim.Render("│ "), m.s.dim.Render("│ "))
	case *ast.List:
		return m.list(n, width)
	case *ast.ThematicBreak:
		return m.s.dim.Render(strings.Repeat("─", width))
	case *tables.Table:
		return m.table(n, width)
	}
	if lines := n.Lines(); n.Kind() == ast.KindParagraph && lines.Len() > 1 && strings.HasPrefix(string(m.line(lines, 0)), "|") {
		return m.raw(lines, width, lipgloss.NewStyle()) // a table that is not complete yet
	}
	return wrap.Render(m.inline(n))
}

func (m *markdown) line(lines *text.Segments, i int) []byte {
	at := lines.At(i)
	return at.Value(m.source)
}

// code keeps the lines of a block, cut at the width.
func (m *markdown) code(lines *text.Segments, width int) string {
	return indent(m.raw(lines, width-2, m.s.accent), "  ", "  ")
}

func (m *markdown) raw(lines *text.Segments, width int, style lipgloss.Style) string {
	var out []string
	for i := range lines.Len() {
		line := strings.TrimRight(string(m.line(lines, i)), "\n")
		for _, part := range strings.Split(lipgloss.NewStyle().Width(max(width, 10)).Render(strings.ReplaceAll(line, "\t", "    ")), "\n") {
			out = append(out, style.Render(strings.TrimRight(part, " ")))
		}
	}
	return strings.Join(out, "\n")
}

// table lines up the columns; where they are too wide together, words go to a next line.
func (m *markdown) table(n *tables.Table, width int) string {
	t := table.New().Border(lipgloss.NormalBorder()).BorderStyle(m.s.dim).
		BorderTop(false).BorderBottom(false).BorderLeft(false).BorderRight(false).
		StyleFunc(func(row, column int) lipgloss.Style {
			style := lipgloss.NewStyle().Padding(0, 1).Bold(row == table.HeaderRow)
			switch n.Alignments[column] {
			case tables.AlignRight:
				return style.Align(lipgloss.Right)
			case tables.AlignCenter:
				return style.Align(lipgloss.Center)
			}
			return style
		})
	for row := n.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			cells = append(cells, m.inline(cell))
		}
		if row.Kind() == tables.KindTableHeader {
			t.Headers(cells...)
		} else {
			t.Row(cells...)
		}
	}
	if out := t.Render(); lipgloss.Width(out) <= width {
		return out
	}
	return t.Width(width).Render()
}

func (m *markdown) list(n *ast.List, width int) string {
	between := "\n"
	if !n.IsTight {
		between = "\n\n"
	}
	var out []string
	number := n.Start
	for item := n.FirstChild(); item != nil; item = item.NextSibling() {
		mark := "• "
		if n.IsOrdered() {
			mark = fmt.Sprintf("%d. ", number)
			number++
		}
		rest := strings.Repeat(" ", lipgloss.Width(mark))
		if text := item.FirstChild(); !n.IsOrdered() && text != nil && text.FirstChild() != nil && text.FirstChild().Kind() == tables.KindTaskCheckBox {
			mark = "" // it has a box
		}
		out = append(out, indent(m.blocks(item, width-len(rest), "\n"), mark, rest))
	}
	return strings.Join(out, between)
}

// inline renders the text of a block in one line.
func (m *markdown) inline(parent ast.Node) string {
	var b strings.Builder
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Segment.Value(m.source))
			if n.HardLineBreak() {
				b.WriteString("\n")
			} else if n.SoftLineBreak() {
				b.WriteString(" ")
			}
		case *ast.String:
			b.Write(n.Value)
		case *ast.CodeSpan:
			b.WriteString(m.s.accent.Render(m.inline(n)))
		case *ast.Emphasis:
			style := lipgloss.NewStyle().Italic(true)
			if n.Level > 1 {
				style = lipgloss.NewStyle().Bold(true)
			}
			b.WriteString(style.Render(m.inline(n)))
		case *tables.Strikethrough:
			b.WriteString(lipgloss.NewStyle().Strikethrough(true).Render(m.inline(n)))
		case *tables.TaskCheckBox:
			box := "☐ "
			if n.IsChecked {
				box = "☑ "
			}
			b.WriteString(box)
		case *ast.Link:
			label, to := m.inline(n), string(n.Destination)
			b.WriteString(label)
			if to != "" && to != label {
				b.WriteString(m.s.dim.Render(" (" + to + ")"))
			}
		case *ast.AutoLink:
			b.Write(n.Label(m.source))
		case *ast.RawHTML:
			for i := range n.Segments.Len() {
				at := n.Segments.At(i)
				b.Write(at.Value(m.source))
			}
		default:
			b.WriteString(m.inline(n))
		}
	}
	return b.String()
}

// indent puts one word before the first line, and another before the others.
func indent(block, first, others string) string {
	lines := strings.Split(block, "\n")
	for i := range lines {
		if i == 0 {
			lines[i] = first + lines[i]
		} else {
			lines[i] = others + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}
