// Command shop charges one order, read from a file. When it crashes, its report goes to the file named by SHOP_CRASH_REPORT,
// as an error tracker's SDK would send it.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"example.com/shop/checkout"
	"example.com/shop/report"
)

func main() {
	if len(os.Args) != 3 || os.Args[1] != "pay" {
		fmt.Fprintln(os.Stderr, "usage: shop pay ORDER.json")
		os.Exit(2)
	}
	body, err := os.ReadFile(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var order checkout.Order
	if err := json.Unmarshal(body, &order); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer report.Crash(os.Getenv("SHOP_CRASH_REPORT"), map[string]any{"order": order})
	fmt.Println("charged", pay(order))
}

func pay(order checkout.Order) int {
	return checkout.Total(order)
}
