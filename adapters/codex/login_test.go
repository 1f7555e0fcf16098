package codex

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// issuer plays the service that ChatGPT's accounts are with.
type issuer struct {
	*httptest.Server
	ca       []byte      // in PEM
	approved atomic.Bool // the user has entered the code
	refuses  atomic.Bool // it gives no tokens
	asked    chan string // paths, cap 1024: more are dropped
}

// token is a signed token in its form; nobody checks the signature.
func token(claims string) string {
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + enc([]byte(claims)) + "." + enc([]byte("signature"))
}

const person = `{"email":"ada@example.com","exp":4102444800,"https://api.openai.com/auth":{"chatgpt_plan_type":"plus","chatgpt_account_id":"account-1","chatgpt_user_id":"user-1"}}`

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{asked: make(chan string, 1024)}
	mux := http.NewServeMux()
	say := func(w http.ResponseWriter, format string, args ...any) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, format, args...)
	}
	mux.HandleFunc("POST /oauth/token", func(w http.ResponseWriter, _ *http.Request) {
		if i.refuses.Load() {
			w.WriteHeader(http.StatusBadRequest)
			say(w, `{"error":"invalid_grant","error_description":"no such code"}`)
			return
		}
		say(w, `{"id_token":%q,"access_token":%q,"refresh_token":"refresh-1"}`, token(person), token(person))
	})
	mux.HandleFunc("POST /api/accounts/deviceauth/usercode", func(w http.ResponseWriter, _ *http.Request) {
		say(w, `{"device_auth_id":"device-1","user_code":"ABCD-1234","interval":"1"}`)
	})
	mux.HandleFunc("POST /api/accounts/deviceauth/token", func(w http.ResponseWriter, _ *http.Request) {
		if !i.approved.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		say(w, `{"authorization_code":"code-1","code_challenge":"challenge","code_verifier":"verifier"}`)
	})
	mux.HandleFunc("GET /backend-api/wham/accounts/check", func(w http.ResponseWriter, _ *http.Request) {
		say(w, `{"accounts":[{"id":"account-1","account_user_id":"user-1","name":"Ada","structure":"personal","plan_type":"plus","is_deactivated":false,`+
			`"can_access_with_session":true,"is_fedramp_compliant_workspace":false,"account_routing_override":"us","workspace_backend_origin":%q}],"default_account_id":"account-1","account_ordering":["account-1"]}`, i.URL)
	})
	i.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case i.asked <- r.Method + " " + r.URL.Path:
		default:
		}
		mux.ServeHTTP(w, r)
	}))
	i.TLS = new(tls.Config)
	i.TLS.Certificates, i.ca = certified(t)
	i.StartTLS()
	t.Cleanup(i.Close)
	return i
}

// certified makes a certificate for 127.0.0.1 and the authority that vouches for
// it: codex takes no certificate that is its own authority.
func certified(t *testing.T) ([]tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Test authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "issuer"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	root, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root})
}

// requests are the paths that were asked for so far.
func (i *issuer) requests() []string {
	var out []string
	for {
		select {
		case p := <-i.asked:
			out = append(out, p)
		default:
			return out
		}
	}
}

// known makes codex ask the issuer who the user is.
func (w *world) known(i *issuer) {
	w.T.Helper()
	config := strings.Replace(w.Read(filepath.Join(w.Home, ".codex/config.toml")), `env_key = "SCRIPTED_KEY"`, "requires_openai_auth = true", 1)
	w.Write(".codex/config.toml", fmt.Sprintf("chatgpt_base_url = %q\n", i.URL+"/backend-api/")+config, 0o600)
	w.Env = append(w.Env,
		"CODEX_CA_CERTIFICATE="+w.Write("ca.pem", string(i.ca), 0o600), "CODEX_APP_SERVER_LOGIN_ISSUER="+i.URL,
		"CODEX_REFRESH_TOKEN_URL_OVERRIDE="+i.URL+"/oauth/token", "CODEX_REVOKE_TOKEN_URL_OVERRIDE="+i.URL+"/oauth/revoke",
	)
}

// TestLive_Login goes through the logins of ChatGPT with an issuer on loopback:
// the user's browser, and the page where a code is entered, are the test. One
// process has all of them, one after another: each begins where the last one has
// logged out.
func TestLive_Login(t *testing.T) {
	t.Parallel()
	w, i := newWorld(t), newIssuer(t)
	w.known(i)
	t.Run("fails", func(t *testing.T) { loginFails(t, &world{w.Part(t)}, i) })
	for _, method := range []string{methodChatGPT, methodDevice} {
		t.Run(method, func(t *testing.T) { login(t, &world{w.Part(t)}, i, method) })
	}
}

// loginFails: the client hears of a login that failed.
func loginFails(t *testing.T, w *world, i *issuer) {
	i.approved.Store(true)
	i.refuses.Store(true)
	defer i.approved.Store(false)
	defer i.refuses.Store(false)
	c := w.open(schema.ClientCapabilities{}, nil)
	from := c.Seen()
	login := c.Must(acp.MethodAuthenticate, &schema.AuthenticateRequest{MethodID: methodDevice})
	_, m := c.Await("the end of the login", from, func(m *acp.Message) bool { return m.Method() == acp.MethodAuthStatusUpdate })
	about := func(name string) string { return rawjson.MemberString(m.Params(), "_meta", acp.MetaKey, "login", name) }
	if id := rawjson.MemberString(login, "_meta", acp.MetaKey, "login", "loginId"); about("loginId") != id || about("error") == "" || rawjson.MemberString(m.Params(), "state") != string(schema.AuthStateUnauthenticated) {
		t.Errorf("login %s ended with %s", id, m.Params())
	}
}

// login logs in by a method, has a turn, and logs out.
func login(t *testing.T, w *world, i *issuer, method string) {
	c := w.open(schema.ClientCapabilities{}, nil)
	from := c.Seen()
	login := c.Must(acp.MethodAuthenticate, &schema.AuthenticateRequest{MethodID: schema.AuthMethodID(method)})
	about := func(name string) string { return rawjson.MemberString(login, "_meta", acp.MetaKey, "login", name) }
	if method == methodDevice {
		if about("userCode") != "ABCD-1234" || !strings.HasPrefix(about("verificationUrl"), i.URL) {
			t.Fatalf("the login is %s; asked was for %q", login, i.requests())
		}
		i.approved.Store(true)
	} else {
		page, err := url.Parse(about("authUrl"))
		if err != nil || !strings.HasPrefix(about("authUrl"), i.URL) {
			t.Fatalf("the login is %s, %v", login, err)
		}
		q := page.Query()
		back := q.Get("redirect_uri") + "?" + url.Values{"code": {"code-1"}, "state": {q.Get("state")}}.Encode()
		r, err := http.Get(back)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
	}
	c.Await("the end of the login", from, func(m *acp.Message) bool {
		return m.Method() == acp.MethodAuthStatusUpdate && rawjson.MemberString(m.Params(), "state") == string(schema.AuthStateAuthenticated)
	})
	if s := string(c.Must(acp.MethodAuthStatus, struct{}{})); !strings.Contains(s, "ada@example.com") {
		t.Errorf("the account is %s", s)
	}
	if _, got := c.Turn(c.New(""), "say I am known"); bridgetest.Said(got) != "I am known" {
		t.Errorf("said %q\n%s", bridgetest.Said(got), c.Quote())
	}
	if key := w.last().Header.Get("Authorization"); key != "Bearer "+token(person) {
		t.Errorf("the model was given %q", key)
	}
	// The user asked for this login, so it is kept.
	file := filepath.Join(w.Home, ".codex/auth.json")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the login is kept as %v, %v", info, err)
	}
	c.Must(acp.MethodLogout, &schema.LogoutRequest{})
	if s := rawjson.MemberString(c.Must(acp.MethodAuthStatus, struct{}{}), "state"); s != string(schema.AuthStateUnauthenticated) {
		t.Errorf("after the logout the state is %s", s)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("after the logout the login is still on disk")
	}
}
