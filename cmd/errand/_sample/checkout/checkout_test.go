package checkout

import "testing"

func TestTotalSpreadsShippingOverParcels(t *testing.T) {
	o := Order{Items: []Item{{Cents: 1000, Parcel: true}, {Cents: 500, Parcel: true}}, Shipping: 499}
	if got := Total(o); got != 2000 {
		t.Errorf("total %d, want 2000", got)
	}
}

func TestTotalOfAnOrderOfGiftCardsHasNoShipping(t *testing.T) {
	o := Order{Items: []Item{{Name: "gift card", Cents: 2500}}}
	if got := Total(o); got != 2500 {
		t.Errorf("total %d, want 2500", got)
	}
}
