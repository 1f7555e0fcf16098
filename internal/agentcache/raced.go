//go:build race

package agentcache

const raced = true
