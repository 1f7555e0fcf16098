package rawjson

// Object builds a JSON object, member after member. The zero value has none:
//
//	rawjson.Object{}.String("sessionId", id).Raw("update", update).End()
//
// Like append, each method returns the object to go on with.
type Object []byte

// Raw adds a member whose value is JSON already.
func (o Object) Raw(name string, value []byte) Object { return append(o.name(name), value...) }

// String adds a member whose value is a string.
func (o Object) String(name, value string) Object { return AppendQuoted(o.name(name), value) }

func (o Object) name(name string) Object {
	if len(o) == 0 {
		o = append(o, '{')
	} else {
		o = append(o, ',')
	}
	return append(AppendQuoted(o, name), ':')
}

// End returns the object.
func (o Object) End() []byte {
	if len(o) == 0 {
		return []byte("{}")
	}
	return append(o, '}')
}
