package pi

import "testing"

func TestLive_Turn(t *testing.T)                             {}
func TestLive_Diffs(t *testing.T)                            {}
func TestLive_Attachments(t *testing.T)                      {}
func TestLive_ExtensionsOfTheUser(t *testing.T)              {}
func TestLive_Modes(t *testing.T)                            {}
func TestLive_ChoicesLeaveTheUsersSettings(t *testing.T)     {}
func TestLive_MCP(t *testing.T)                              {}
func TestLive_Wishes(t *testing.T)                           {}
func TestLive_SessionOfATerminal(t *testing.T)               {}
func TestLive_ForkListDeleteTitle(t *testing.T)              {}
func TestLive_CommandsAndCompaction(t *testing.T)            {}
