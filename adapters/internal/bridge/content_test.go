package bridge_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

func embedded(mime, uri, blob string) schema.ContentBlock {
	return schema.ContentBlock{Resource: &schema.EmbeddedResource{Resource: schema.EmbeddedResourceResource{BlobResourceContents: &schema.BlobResourceContents{URI: uri, MimeType: &mime, Blob: blob}}}}
}

func embeddedText(uri, text string) schema.ContentBlock {
	return schema.ContentBlock{Resource: &schema.EmbeddedResource{Resource: schema.EmbeddedResourceResource{TextResourceContents: &schema.TextResourceContents{URI: uri, Text: text}}}}
}

var words = bridge.Content{Agent: "acme", Files: "text", Text: func(s string) any { return s }}

func TestContent(t *testing.T) {
	all := words
	all.Files = "images and text"
	all.Image = func(mime, data string) any { return "image " + mime + " " + data }
	all.ImageAt = func(i *schema.ImageContent) (any, error) { return "image at " + *i.URI, nil }
	all.Link = func(l *schema.ResourceLink) []any { return []any{"link", l.URI} }
	all.File = func(mime, uri, data string) ([]any, bool) {
		return []any{"file " + uri, data}, strings.HasPrefix(mime, "image/")
	}
	uri := "https://x.test/i.png"
	prompt := []schema.ContentBlock{
		schema.TextBlock("look"), schema.TextBlock(" \n"), embeddedText("file:///a.go", "package a"),
		{Image: &schema.ImageContent{MimeType: "image/png", Data: "aa=="}},
		{Image: &schema.ImageContent{MimeType: "image/png", URI: &uri}},
		{ResourceLink: &schema.ResourceLink{Name: "b", URI: "file:///b"}},
		embedded("text/plain", "file:///c.txt", "aGk="), embedded("image/gif", "file:///d.gif", "bb=="), schema.TextBlock("and say"),
	}
	got, err := all.Parts(prompt)
	if err != nil {
		t.Fatal(err)
	}
	want := []any{
		"look", bridge.Link("", "file:///a.go"), "image image/png aa==", "image at " + uri, "link", "file:///b",
		bridge.Link("", "file:///c.txt"), "file file:///d.gif", "bb==", "and say",
		"\n<context ref=\"file:///a.go\">\npackage a\n</context>", "\n<context ref=\"file:///c.txt\">\nhi\n</context>",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for name, tt := range map[string]struct {
		prompt schema.ContentBlock
		want   string
	}{
		"an image where none are taken": {schema.ContentBlock{Image: &schema.ImageContent{MimeType: "image/png", Data: "aa=="}}, "acme takes text"},
		"audio":                         {schema.ContentBlock{Audio: &schema.AudioContent{MimeType: "audio/wav", Data: "aa=="}}, "acme takes text"},
		"a file of an unknown kind":     {embedded("application/zip", "file:///z", "aa=="), `acme cannot be given resource file:///z of type "application/zip": text can be embedded`},
		"a broken text":                 {embedded("text/plain", "file:///t", "%%"), "resource file:///t: illegal base64"},
		"nothing":                       {schema.TextBlock("  "), "the prompt is empty"},
	} {
		if _, err := words.Parts([]schema.ContentBlock{tt.prompt}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
