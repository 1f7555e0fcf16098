package bridge

import (
	"encoding/base64"
	"fmt"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// Content makes an agent's own parts of a prompt. The functions return the parts
// of one block; those that are nil are for what the agent does not take.
type Content struct {
	Agent string // in errors, such as "codex"
	Files string // in errors: what it takes as embedded files, such as "images and text"

	Text    func(text string) any
	Image   func(mime, data string) any                         // data is base64
	ImageAt func(image *schema.ImageContent) (any, error)       // an image that is given by its URI
	Link    func(link *schema.ResourceLink) []any               // nil makes a text of it
	File    func(mime, uri, data string) (parts []any, ok bool) // an embedded file that is no text
}

// Parts returns the parts of a prompt. Embedded texts follow the words, where
// only their names stand.
func (c *Content) Parts(prompt []schema.ContentBlock) ([]any, error) {
	var out, context []any
	embed := func(uri, text string) {
		out = append(out, c.Text(Link("", uri)))
		context = append(context, c.Text(fmt.Sprintf("\n<context ref=%q>\n%s\n</context>", uri, text)))
	}
	for _, b := range prompt {
		switch {
		case b.Text != nil:
			if strings.TrimSpace(b.Text.Text) != "" {
				out = append(out, c.Text(b.Text.Text))
			}
		case b.Image != nil && b.Image.Data != "" && c.Image != nil:
			out = append(out, c.Image(b.Image.MimeType, b.Image.Data))
		case b.Image != nil && b.Image.URI != nil && c.ImageAt != nil:
			one, err := c.ImageAt(b.Image)
			if err != nil {
				return nil, err
			}
			out = append(out, one)
		case b.ResourceLink != nil && c.Link != nil:
			out = append(out, c.Link(b.ResourceLink)...)
		case b.ResourceLink != nil:
			out = append(out, c.Text(Link(b.ResourceLink.Name, b.ResourceLink.URI)))
		case b.Resource != nil && b.Resource.Resource.TextResourceContents != nil:
			r := b.Resource.Resource.TextResourceContents
			embed(r.URI, r.Text)
		case b.Resource != nil && b.Resource.Resource.BlobResourceContents != nil:
			r := b.Resource.Resource.BlobResourceContents
			mime := ""
			if r.MimeType != nil {
				mime = *r.MimeType
			}
			if strings.HasPrefix(mime, "text/") || mime == "application/json" {
				text, err := base64.StdEncoding.DecodeString(r.Blob)
				if err != nil {
					return nil, acp.Errorf(acp.CodeInvalidParams, "resource %s: %v", r.URI, err)
				}
				embed(r.URI, string(text))
				break
			}
			var parts []any
			ok := false
			if c.File != nil {
				parts, ok = c.File(mime, r.URI, r.Blob)
			}
			if !ok {
				return nil, acp.Errorf(acp.CodeInvalidParams, "%s cannot be given resource %s of type %q: %s can be embedded", c.Agent, r.URI, mime, c.Files)
			}
			out = append(out, parts...)
		default:
			takes := "text, images, resource links and embedded resources"
			if c.Image == nil {
				takes = "text, resource links and embedded resources"
			}
			return nil, acp.Errorf(acp.CodeInvalidParams, "%s takes %s in a prompt, no other content", c.Agent, takes)
		}
	}
	if len(out) == 0 {
		return nil, acp.Errorf(acp.CodeInvalidParams, "the prompt is empty")
	}
	return append(out, context...), nil
}
