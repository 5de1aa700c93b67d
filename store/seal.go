package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tink-crypto/tink-go/v2/aead/aesgcm"
	"github.com/tink-crypto/tink-go/v2/insecuresecretdataaccess"
	"github.com/tink-crypto/tink-go/v2/secretdata"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/errand-dev/errand"
)

// SealKeyBytes is the length of a sealing key: AES-256.
const SealKeyBytes = 32

// sealPrefixBytes is Tink's prefix of a ciphertext: one byte of version and the key's id.
const sealPrefixBytes = 5

// Sealer encrypts what must be readable again (the secrets of sources) before it reaches the database. A sealed value
// begins with the id of its key, so that after a change of keys both are told apart, and is bound to a context (the id
// of its row): moved to another row it does not open.
type Sealer struct {
	current tink.AEAD
	opens   []sealKey // the current key and those before it
}

type sealKey struct {
	prefix []byte
	aead   tink.AEAD
}

// NewSealer seals under key and opens what was sealed under it or under one of the old keys. It returns Invalid for a
// key that is not 32 bytes long or is all zero.
func NewSealer(key []byte, old ...[]byte) (*Sealer, error) {
	s := &Sealer{}
	for _, k := range append([][]byte{key}, old...) {
		aead, err := newSealAEAD(k)
		if err != nil {
			return nil, err
		}
		s.opens = append(s.opens, sealKey{prefix: sealPrefix(k), aead: aead})
	}
	s.current = s.opens[0].aead
	return s, nil
}

func newSealAEAD(key []byte) (tink.AEAD, error) {
	if len(key) != SealKeyBytes {
		return nil, errand.Invalid("sealing key", "it is %d bytes long and must be %d: make one with  openssl rand -base64 %d", len(key), SealKeyBytes, SealKeyBytes)
	}
	if bytes.Equal(key, make([]byte, SealKeyBytes)) {
		return nil, errand.Invalid("sealing key", "it is all zero: make one with  openssl rand -base64 %d", SealKeyBytes)
	}
	params, err := aesgcm.NewParameters(aesgcm.ParametersOpts{KeySizeInBytes: SealKeyBytes, IVSizeInBytes: 12, TagSizeInBytes: 16, Variant: aesgcm.VariantTink})
	if err != nil {
		return nil, fmt.Errorf("sealing key: %w", err)
	}
	k, err := aesgcm.NewKey(secretdata.NewBytesFromData(key, insecuresecretdataaccess.Token{}), sealKeyID(key), params)
	if err != nil {
		return nil, fmt.Errorf("sealing key: %w", err)
	}
	return aesgcm.NewAEAD(k)
}

// sealKeyID names a key without telling anything of use about it: the same key has the same id on every replica, with
// nothing to configure.
func sealKeyID(key []byte) uint32 {
	sum := sha256.Sum256(append([]byte("errand sealing key id\x00"), key...))
	return binary.BigEndian.Uint32(sum[:])
}

func sealPrefix(key []byte) []byte {
	return binary.BigEndian.AppendUint32([]byte{1}, sealKeyID(key)) // 1: Tink's prefix of this variant
}

// Seal encrypts plain and binds it to context. Two seals of the same text differ. An empty text or context is refused:
// a secret that is empty is none.
func (s *Sealer) Seal(plain []byte, context string) ([]byte, error) {
	if len(plain) == 0 || context == "" {
		return nil, errand.Errorf(errand.CodeInternal, nil, "nothing to seal, or no context to bind it to")
	}
	sealed, err := s.current.Encrypt(plain, []byte(context))
	if err != nil {
		return nil, errand.Errorf(errand.CodeInternal, err, "cannot seal")
	}
	return sealed, nil
}

// knows tells whether a key of this sealer made sealed values with that prefix.
func (s *Sealer) knows(prefix []byte) bool {
	return slices.ContainsFunc(s.opens, func(k sealKey) bool { return bytes.Equal(k.prefix, prefix) })
}

// Open gives back what was sealed for the same context. Its errors are Internal: what is in the database does not fit
// the keys of this process, which is for the operator to mend.
func (s *Sealer) Open(sealed []byte, context string) ([]byte, error) {
	for _, k := range s.opens {
		if !bytes.HasPrefix(sealed, k.prefix) {
			continue
		}
		plain, err := k.aead.Decrypt(sealed, []byte(context))
		if err != nil {
			return nil, errand.Errorf(errand.CodeInternal, err, "a sealed value was changed, or belongs to another row")
		}
		return plain, nil
	}
	err := errors.New("too short to be a sealed value")
	if len(sealed) >= sealPrefixBytes {
		err = fmt.Errorf("sealed under the key %x, which this process was not given", sealed[1:sealPrefixBytes])
	}
	return nil, errand.Errorf(errand.CodeInternal, err, "a sealed value cannot be opened with the keys of this process")
}
