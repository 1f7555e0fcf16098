package cmdline

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/urfave/cli/v2"
)

// Token returns the token of --token, --token-file or their variables, whose names begin
// with prefix, and the file that it is from; "" when there is none. What stands on the
// command line goes before what is in the environment; there only one of them may stand.
func Token(c *cli.Context, prefix string) (token, file string, err error) {
	token, file = c.String("token"), c.String("token-file")
	if token != "" && token != os.Getenv(prefix+"_TOKEN") && file != "" && file != os.Getenv(prefix+"_TOKEN_FILE") {
		return "", "", Usagef(c, "--token and --token-file are both given: use one")
	}
	exported := token == os.Getenv(prefix+"_TOKEN") && file != os.Getenv(prefix+"_TOKEN_FILE")
	if file == "" || token != "" && !exported {
		if err := CheckToken(token); err != nil {
			return "", "", Usagef(c, "the token %s", err)
		}
		return token, "", nil
	}
	if token, err = TokenIn(file); err != nil {
		return "", "", Usagef(c, "--token-file: %s", err)
	}
	return token, file, nil
}

// TokenIn returns the token that is in a file.
func TokenIn(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", fmt.Errorf("the token file %s is empty", file)
	}
	if err := CheckToken(token); err != nil {
		return "", fmt.Errorf("the token in %s %w", file, err)
	}
	return token, nil
}

// CheckToken is the error of a token that nobody could present.
func CheckToken(token string) error {
	if strings.ContainsFunc(token, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsPrint(r) || r == ' ' }) {
		return errors.New("has characters that a header cannot carry: use printable ASCII without blanks")
	}
	return nil
}
