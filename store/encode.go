package store

import (
	"context"
	"encoding/hex"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/errand-dev/errand"
)

// encodeWell teaches a connection two things about the lists that ingest sends. Ids travel as 16 bytes: as a text type they would
// travel as text, which the server reads back, after an attempt in binary that fails. And room for texts is made once, where
// the driver would begin with 256 bytes and double.
func encodeWell(_ context.Context, conn *pgx.Conn) error {
	m := conn.TypeMap()
	m.TryWrapEncodePlanFuncs = append([]pgtype.TryWrapEncodePlanFunc{wrapID, wrapTexts}, m.TryWrapEncodePlanFuncs...)
	return nil
}

// binaryID is an errand.ID as the driver knows ids.
type binaryID errand.ID

// UUIDValue implements pgtype.UUIDValuer.
func (id binaryID) UUIDValue() (pgtype.UUID, error) {
	parsed, err := errand.ParseID(string(id))
	if err != nil {
		return pgtype.UUID{}, err
	}
	u := pgtype.UUID{Valid: true}
	h := parsed[:8] + parsed[9:13] + parsed[14:18] + parsed[19:23] + parsed[24:]
	_, err = hex.Decode(u.Bytes[:], []byte(h))
	return u, err
}

func wrapID(value any) (pgtype.WrappedEncodePlanNextSetter, any, bool) {
	id, ok := value.(errand.ID)
	return &idPlan{}, binaryID(id), ok
}

type idPlan struct{ next pgtype.EncodePlan }

func (p *idPlan) SetNext(next pgtype.EncodePlan) { p.next = next }

func (p *idPlan) Encode(value any, buf []byte) ([]byte, error) {
	id, _ := value.(errand.ID)
	return p.next.Encode(binaryID(id), buf)
}

func wrapTexts(value any) (pgtype.WrappedEncodePlanNextSetter, any, bool) {
	texts, ok := value.([]string)
	return &textsPlan{}, pgtype.FlatArray[string](texts), ok
}

type textsPlan struct{ next pgtype.EncodePlan }

func (p *textsPlan) SetNext(next pgtype.EncodePlan) { p.next = next }

func (p *textsPlan) Encode(value any, buf []byte) ([]byte, error) {
	texts, _ := value.([]string)
	if texts == nil {
		return nil, nil // NULL, as without this
	}
	const head, length = 20, 4 // bytes of an array's header and before each element
	size := head
	for _, t := range texts {
		size += length + len(t)
	}
	return p.next.Encode(pgtype.FlatArray[string](texts), slices.Grow(buf, size))
}
