package signature

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha1"
	_ "crypto/sha256"
	_ "crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
)

// What RFC 4880 and RFC 9580 call things.
const (
	tagSignature = 2
	tagKey       = 6
	tagSubkey    = 14

	overDocument         = 0x00
	bindsSubkey          = 0x18
	revokesKey           = 0x20
	revokesSubkey        = 0x28
	algorithmRSA         = 1
	algorithmEdDSA       = 22
	algorithmEd25519     = 27
	subpacketCreated     = 2
	subpacketIssuer      = 16
	subpacketKeyFlags    = 27
	subpacketFingerprint = 33
	flagSigns            = 0x02
)

// OpenPGP checks that a detached signature of a document is by the key with a
// fingerprint, or by a subkey that it lets sign. The key is read from keys, which
// nobody has to trust: what the fingerprint does not name counts for nothing.
//
// Keys of RSA and Ed25519 are read, in packets of version 4. Dates at which keys
// and signatures end are not looked at: who has somebody's key sets the date.
func OpenPGP(fingerprint string, keys, sig, document []byte) error {
	owner, err := readKeys(keys, fingerprint)
	if err != nil {
		return err
	}
	body, err := dearmor(sig)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	ps, err := packets(body)
	if err != nil {
		return fmt.Errorf("%w: the signature: %w", ErrUnknown, err)
	}
	why := fmt.Errorf("%w: the file with it holds none of a document", ErrUnknown)
	for _, p := range ps {
		s, ok := readSignature(p)
		if !ok || s.kind != overDocument {
			continue
		}
		k := owner.key(s.issuer)
		if k == nil {
			why = fmt.Errorf("%w: it is by the key %X, and not by %s", ErrUnknown, s.issuer, fingerprint)
			continue
		}
		return s.verify(k, document)
	}
	return why
}

// packet is one packet of OpenPGP.
type packet struct {
	tag  byte
	body []byte
}

// packets takes a file of packets apart. Lengths that are not told ahead are
// not read: keys and signatures have none.
func packets(b []byte) ([]packet, error) {
	var all []packet
	for len(b) > 0 {
		head := b[0]
		b = b[1:]
		var tag byte
		size := -1
		switch {
		case head&0x80 == 0:
			return nil, fmt.Errorf("no packet begins with %#x", head)
		case head&0x40 == 0: // the older form
			tag = head >> 2 & 0x0f
			n := 1 << (head & 3)
			if n > 4 || len(b) < n {
				return nil, errCut
			}
			size = 0
			for _, c := range b[:n] {
				size = size<<8 | int(c)
			}
			b = b[n:]
		default:
			tag = head & 0x3f
			size, b = length(b)
		}
		if size < 0 || size > len(b) {
			return nil, errCut
		}
		all = append(all, packet{tag, b[:size]})
		b = b[size:]
	}
	return all, nil
}

var errCut = fmt.Errorf("a packet is cut off, or of a length that is not read")

// length reads a length of the newer form and returns what follows it; -1 when
// it is none that is read.
func length(b []byte) (int, []byte) {
	switch {
	case len(b) >= 1 && b[0] < 192:
		return int(b[0]), b[1:]
	case len(b) >= 2 && b[0] < 224:
		return int(b[0]-192)<<8 + int(b[1]) + 192, b[2:]
	case len(b) >= 5 && b[0] == 255:
		return int(binary.BigEndian.Uint32(b[1:])), b[5:]
	}
	return -1, nil
}

// dearmor returns the packets in a file that may be text.
func dearmor(b []byte) ([]byte, error) {
	if len(b) > 0 && b[0]&0x80 != 0 {
		return b, nil
	}
	text := strings.ReplaceAll(string(b), "\r\n", "\n")
	_, text, found := strings.Cut(text, "-----BEGIN PGP ")
	_, text, blank := strings.Cut(text, "\n\n") // headers come before it
	text, _, end := strings.Cut(text, "-----END PGP ")
	if !found || !blank || !end {
		return nil, fmt.Errorf("the file is neither packets of OpenPGP nor their text form")
	}
	var data strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "=") { // a sum against mistakes of transport
			data.WriteString(line)
		}
	}
	return base64.StdEncoding.DecodeString(data.String())
}

// key is a key, or a subkey of one.
type key struct {
	algorithm   byte
	rsa         *rsa.PublicKey
	ed25519     ed25519.PublicKey
	fingerprint []byte
	body        []byte // as signatures over keys take it
}

func (k *key) hashed() []byte {
	return append([]byte{0x99, byte(len(k.body) >> 8), byte(len(k.body))}, k.body...)
}

// ed25519Curve names the curve in keys of the older form.
var ed25519Curve = []byte{9, 0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01}

func readKey(body []byte) (*key, bool) {
	if len(body) < 6 || len(body) > 0xffff || body[0] != 4 {
		return nil, false
	}
	k := &key{algorithm: body[5], body: body}
	sum := sha1.Sum(k.hashed())
	k.fingerprint = sum[:]
	rest := body[6:]
	switch k.algorithm {
	case algorithmRSA:
		n, rest, ok := number(rest)
		e, _, ok2 := number(rest)
		if !ok || !ok2 || len(n) < 256 || len(e) == 0 || len(e) > 4 {
			return nil, false
		}
		k.rsa = &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
	case algorithmEdDSA:
		point, ok := bytes.CutPrefix(rest, ed25519Curve)
		p, _, ok2 := number(point)
		if !ok || !ok2 || len(p) != 33 || p[0] != 0x40 {
			return nil, false
		}
		k.ed25519 = p[1:]
	case algorithmEd25519:
		if len(rest) != ed25519.PublicKeySize {
			return nil, false
		}
		k.ed25519 = rest
	default:
		return nil, false
	}
	return k, true
}

// number reads a number with its length in bits, and returns what follows.
func number(b []byte) (n, rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, nil, false
	}
	size := (int(b[0])<<8 | int(b[1]) + 7) / 8
	if len(b) < 2+size {
		return nil, nil, false
	}
	return b[2 : 2+size], b[2+size:], true
}

// owner is a key and the subkeys that it lets sign.
type owner []*key

// key returns the key that a signature's issuer names, by its fingerprint or the
// end of it.
func (o owner) key(issuer []byte) *key {
	for _, k := range o {
		if len(issuer) >= 8 && bytes.HasSuffix(k.fingerprint, issuer) {
			return k
		}
	}
	return nil
}

// readKeys finds the key with a fingerprint, and its subkeys, in a file of keys.
func readKeys(file []byte, fingerprint string) (owner, error) {
	body, err := dearmor(file)
	if err != nil {
		return nil, fmt.Errorf("%w: the key: %w", ErrUnknown, err)
	}
	ps, err := packets(body)
	if err != nil {
		return nil, fmt.Errorf("%w: the key: %w", ErrUnknown, err)
	}
	want := strings.ToLower(fingerprint)
	var o owner
	var sub *key
	gone := map[*key]bool{}
	for _, p := range ps {
		switch p.tag {
		case tagKey:
			if len(o) > 0 {
				return o.without(gone)
			}
			if k, ok := readKey(p.body); ok && hex.EncodeToString(k.fingerprint) == want {
				o = owner{k}
			}
			sub = nil
		case tagSubkey:
			sub, _ = readKey(p.body)
		case tagSignature:
			s, ok := readSignature(p)
			if !ok || len(o) == 0 {
				continue
			}
			switch {
			case s.kind == revokesKey && s.verify(o[0], o[0].hashed()) == nil:
				return nil, fmt.Errorf("%w: its owner gave up the key %s", ErrWrong, fingerprint)
			case sub == nil:
			case s.kind == bindsSubkey && s.signs && s.verify(o[0], o[0].hashed(), sub.hashed()) == nil:
				o = append(o, sub)
			case s.kind == revokesSubkey && s.verify(o[0], o[0].hashed(), sub.hashed()) == nil:
				gone[sub] = true
			}
		}
	}
	return o.without(gone)
}

func (o owner) without(gone map[*key]bool) (owner, error) {
	if len(o) == 0 {
		return nil, fmt.Errorf("%w: the file of keys does not hold the maker's, or in a form that this release does not read", ErrUnknown)
	}
	var left owner
	for _, k := range o {
		if !gone[k] {
			left = append(left, k)
		}
	}
	return left, nil
}

// mark is a signature of OpenPGP.
type mark struct {
	kind, algorithm byte
	hash            crypto.Hash
	trailer         []byte // hashed behind what is signed
	issuer          []byte // a fingerprint, or the end of one; it is only a hint
	signs           bool   // the subkey that it binds may sign
	start           []byte // of the hash
	rest            []byte // the numbers
}

func readSignature(p packet) (*mark, bool) {
	b := p.body
	if p.tag != tagSignature || len(b) < 6 || b[0] != 4 {
		return nil, false
	}
	s := &mark{kind: b[1], algorithm: b[2]}
	switch b[3] {
	case 8:
		s.hash = crypto.SHA256
	case 9:
		s.hash = crypto.SHA384
	case 10:
		s.hash = crypto.SHA512
	default:
		return nil, false
	}
	signed := 6 + (int(b[4])<<8 | int(b[5]))
	if len(b) < signed+2 {
		return nil, false
	}
	s.trailer = binary.BigEndian.AppendUint32(append(bytes.Clone(b[:signed]), 4, 0xff), uint32(signed))
	if !s.subpackets(b[6:signed], true) {
		return nil, false
	}
	loose := int(b[signed])<<8 | int(b[signed+1])
	b = b[signed+2:]
	if len(b) < loose+2 || !s.subpackets(b[:loose], false) {
		return nil, false
	}
	s.start, s.rest = b[loose:loose+2], b[loose+2:]
	return s, true
}

// subpackets reads what a signature says besides. A subpacket that must be
// understood and is not makes it one that cannot be checked.
func (s *mark) subpackets(b []byte, signed bool) bool {
	for len(b) > 0 {
		size, rest := length(b)
		if size < 1 || size > len(rest) {
			return false
		}
		kind, body := rest[0]&0x7f, rest[1:size]
		critical := rest[0]&0x80 != 0
		b = rest[size:]
		switch {
		case kind == subpacketIssuer && len(body) == 8:
			if s.issuer == nil {
				s.issuer = body
			}
		case kind == subpacketFingerprint && len(body) == 21:
			s.issuer = body[1:]
		case kind == subpacketKeyFlags && len(body) > 0:
			s.signs = signed && body[0]&flagSigns != 0
		case kind == subpacketCreated:
		case critical && signed:
			return false
		}
	}
	return true
}

// verify checks a signature of parts, one behind the other.
func (s *mark) verify(by *key, parts ...[]byte) error {
	h := s.hash.New()
	for _, p := range append(parts, s.trailer) {
		h.Write(p)
	}
	sum := h.Sum(nil)
	wrong := fmt.Errorf("%w: it is not by the key %X, or of something else", ErrWrong, by.fingerprint)
	if !bytes.Equal(sum[:2], s.start) || s.algorithm != by.algorithm {
		return wrong
	}
	switch {
	case by.rsa != nil:
		n, _, ok := number(s.rest)
		size := by.rsa.Size()
		if !ok || len(n) > size || rsa.VerifyPKCS1v15(by.rsa, s.hash, sum, append(make([]byte, size-len(n)), n...)) != nil {
			return wrong
		}
	case s.algorithm == algorithmEd25519:
		if len(s.rest) != ed25519.SignatureSize || !ed25519.Verify(by.ed25519, sum, s.rest) {
			return wrong
		}
	default:
		r, rest, ok := number(s.rest)
		v, _, ok2 := number(rest)
		if !ok || !ok2 || len(r) > 32 || len(v) > 32 {
			return wrong
		}
		sig := make([]byte, ed25519.SignatureSize)
		copy(sig[32-len(r):], r)
		copy(sig[64-len(v):], v)
		if !ed25519.Verify(by.ed25519, sum, sig) {
			return wrong
		}
	}
	return nil
}
